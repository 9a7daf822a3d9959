// SPDX-License-Identifier: Apache-2.0
// A broker process that a test may kill and start again.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const binary = process.env.SIGNALBOX_BIN;
const logFile = process.env.SIGNALBOX_LOG ?? "/dev/null";

export class Broker {
  #process;
  #exited;

  // start runs a broker on a data directory. Without a port it finds a free one
  // that the system gives to nobody by itself, neither to listen at nor to connect
  // from: a restart names it, so that clients find the broker again.
  static async start(dir, port = 0, ...flags) {
    if (port !== 0) return await Broker.#startAt(dir, port, flags);
    for (let tries = 1; ; tries++) {
      try {
        return await Broker.#startAt(dir, 20_000 + Math.floor(Math.random() * 12_000), flags);
      } catch (e) {
        if (tries === 5) throw e; // somebody may have that port
      }
    }
  }

  static async #startAt(dir, port, flags) {
    const b = new Broker();
    const log = openSync(logFile, "a");
    b.#process = spawn(binary, ["serve", "--data", dir, "--listen", `127.0.0.1:${port}`, ...flags], { stdio: ["ignore", "pipe", log] });
    closeSync(log);
    b.#exited = once(b.#process, "exit");
    for await (const line of createInterface({ input: b.#process.stdout })) {
      const found = /https?:\/\/127\.0\.0\.1:(\d+)/.exec(line);
      if (found) {
        [b.url, b.port] = [found[0], Number(found[1])];
        b.#process.stdout.resume(); // the rest of the banner must not fill the pipe
        return b;
      }
    }
    assert.fail("the broker ended without saying where it is; see " + logFile);
  }

  // stop sends a signal and returns the exit status, and whether the broker of
  // this log ever had to cut connections that did not end by themselves.
  async stop(signal) {
    if (this.#process.exitCode === null && this.#process.signalCode === null) this.#process.kill(signal);
    const [code, killedBy] = await this.#exited;
    return { code, killedBy, cut: readFileSync(logFile, "utf8").includes("did not end within the grace period") };
  }
}
