// SPDX-License-Identifier: Apache-2.0
// Headless Chromium, driven through the DevTools protocol over a pipe: messages
// are JSON, each ends with a NUL byte (--remote-debugging-pipe).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const flags = [
  "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
];

export class Chromium {
  #process;
  #profile = mkdtempSync(join(tmpdir(), "interop-chromium-"));
  #waiting = new Map(); // by message id
  #sent = 0;
  #events = []; // all that the browser told, in order

  static async start(...more) {
    const c = new Chromium();
    c.#process = spawn("chromium", [...flags, ...more, `--user-data-dir=${c.#profile}`, "about:blank"],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    c.#read(c.#process.stdio[4]);
    c.version = (await c.send("Browser.getVersion")).product;
    return c;
  }

  async #read(pipe) {
    let rest = "";
    pipe.setEncoding("utf8");
    for await (const chunk of pipe) {
      const messages = (rest + chunk).split("\0");
      rest = messages.pop();
      for (const m of messages.map((text) => JSON.parse(text))) {
        const waiting = this.#waiting.get(m.id);
        if (!waiting) this.#events.push(m);
        else if (m.error) waiting.reject(new Error(JSON.stringify(m.error)));
        else waiting.resolve(m.result);
        this.#waiting.delete(m.id);
      }
    }
    for (const { reject } of this.#waiting.values()) reject(new Error("Chromium has ended"));
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#sent;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    });
  }

  // open shows a page. With it come functions to run code in it and to list the
  // requests that left it: url, and the headers as they were on the wire.
  async open(url) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    await this.send("Network.enable", {}, sessionId);
    const { errorText } = await this.send("Page.navigate", { url }, sessionId);
    assert.equal(errorText, undefined);
    const evaluate = async (expression) => {
      const { result, exceptionDetails } = await this.send("Runtime.evaluate",
        { expression, returnByValue: true, awaitPromise: true }, sessionId);
      assert.equal(exceptionDetails, undefined, exceptionDetails?.exception?.description);
      return result.value;
    };
    const requests = () => {
      const told = (method) => this.#events.filter((e) => e.sessionId === sessionId && e.method === method).map((e) => e.params);
      const urls = new Map(told("Network.requestWillBeSent").map((p) => [p.requestId, p.request.url]));
      return told("Network.requestWillBeSentExtraInfo").map((p) => ({ url: urls.get(p.requestId), headers: p.headers }));
    };
    return { evaluate, requests };
  }

  async stop() {
    const exited = once(this.#process, "exit");
    if (this.#process.exitCode === null) {
      this.send("Browser.close").catch(() => {}); // it ends before it answers
      const timer = setTimeout(() => this.#process.kill("SIGKILL"), 5000);
      await exited;
      clearTimeout(timer);
    }
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
