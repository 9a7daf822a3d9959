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

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
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

// startNginx returns the URL of every server of the configuration, and stop.
export async function startNginx(brokerURL) {
  const ports = { BROKER: new URL(brokerURL).port, DEFAULT: await freePort(), KEEPALIVE: await freePort(), HTTP2: await freePort() };
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
  for (let tries = 0; !(await answers(ports.DEFAULT)); tries++) {
    if (tries === 100 || nginx.exitCode !== null) {
      await stop();
      assert.fail("nginx does not answer");
    }
    await sleep(50);
  }
  return { plain: `http://127.0.0.1:${ports.DEFAULT}`, keepalive: `http://127.0.0.1:${ports.KEEPALIVE}`, http2: `http://127.0.0.1:${ports.HTTP2}`, stop };
}
