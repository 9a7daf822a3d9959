// SPDX-License-Identifier: Apache-2.0
// nginx with the configuration of ../../nginx, in front of a broker.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const template = new URL("../../nginx/nginx.conf", import.meta.url);

// freePorts are free at one time, and so different.
async function freePorts(n) {
  const servers = Array.from({ length: n }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => { server.close(); return once(server, "close"); }));
  return ports;
}

async function answers(port) {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

// startNginx returns the URL of every server of the configuration, and stop. Others
// may take a port before nginx does; it tries again then.
export async function startNginx(brokerURL) {
  for (let tries = 1; ; tries++) {
    try {
      return await tryNginx(brokerURL);
    } catch (e) {
      if (tries === 5) throw e;
    }
  }
}

async function tryNginx(brokerURL) {
  const [DEFAULT, KEEPALIVE, HTTP2] = await freePorts(3);
  const ports = { BROKER: new URL(brokerURL).port, DEFAULT, KEEPALIVE, HTTP2 };
  const dir = mkdtempSync(join(tmpdir(), "interop-nginx-"));
  const conf = readFileSync(template, "utf8").replace(/:([A-Z0-9]+)\b/g, (all, word) => (word in ports ? ":" + ports[word] : all));
  writeFileSync(join(dir, "nginx.conf"), conf);
  // Some systems have it in a folder for administrators only.
  const env = { ...process.env, PATH: process.env.PATH + ":/usr/sbin" };
  const nginx = spawn("nginx", ["-p", dir, "-c", "nginx.conf", "-e", "stderr"], { stdio: ["ignore", "ignore", "inherit"], env });
  const exited = once(nginx, "exit");
  const stop = async () => {
    if (nginx.exitCode === null && nginx.signalCode === null) nginx.kill("SIGTERM");
    await exited;
    rmSync(dir, { recursive: true, force: true });
  };
  for (let tries = 0; nginx.exitCode !== null || !(await answers(DEFAULT)); tries++) {
    if (tries === 600 || nginx.exitCode !== null) {
      await stop();
      assert.fail("nginx does not answer");
    }
    await sleep(50);
  }
  return { plain: `http://127.0.0.1:${DEFAULT}`, keepalive: `http://127.0.0.1:${KEEPALIVE}`, http2: `http://127.0.0.1:${HTTP2}`, stop };
}
