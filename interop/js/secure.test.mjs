// SPDX-License-Identifier: Apache-2.0
// A page in headless Chromium at a broker with a certificate: more streams than
// HTTP/1 would allow it, over HTTP/2, and the browser's own WebSocket.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Broker } from "./lib/broker.mjs";
import { Chromium } from "./lib/chromium.mjs";

const dir = mkdtempSync(join(tmpdir(), "interop-secure-"));
const streams = 30;
let broker, chromium, page;

before(async () => {
  const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert], { stdio: "ignore" });
  broker = await Broker.start(join(dir, "data"), 0, "--tls-cert", cert, "--tls-key", key);
  chromium = await Chromium.start("--ignore-certificate-errors");
  console.log("#", chromium.version);
  page = await chromium.open(broker.url + "/");
  // What was sent counts once the page has left the broker's front page to itself.
  for (let i = 0; (await page.evaluate("location.href")) !== broker.url + "/" && i < 1200; i++) await sleep(50);
});

after(async () => {
  await chromium?.stop();
  await broker?.stop("SIGTERM");
  rmSync(dir, { recursive: true, force: true });
});

// until waits for an expression in the page to be true.
async function until(what, expression) {
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; await sleep(50)) {
    if (await page.evaluate(expression)) return;
  }
  assert.fail(`the page waited in vain: ${what}`);
}

const publish = (topic, id) => page.evaluate(`fetch("/v1/topics/${topic}/events", { method: "POST",
  headers: { "content-type": "application/json", "ce-specversion": "1.0", "ce-id": "${id}", "ce-source": "/page", "ce-type": "t" },
  body: "{}" }).then((answer) => answer.status)`);

test(`${streams} EventSources of one page are open at once`, async () => {
  await page.evaluate(`window.seen = {}; window.sources = [];
    for (let i = 0; i < ${streams}; i++) {
      const source = new EventSource("/v1/topics/secure." + i + "/events");
      window.sources.push(source); window.seen[i] = [];
      source.addEventListener("signalbox.sync", () => window.seen[i].push("sync"));
      source.onmessage = (e) => window.seen[i].push(JSON.parse(e.data).id);
    } 0`);
  await until("every stream is open", "Object.values(seen).every((s) => s[0] === 'sync')");
  for (const i of [0, streams - 1]) assert.equal(await publish("secure." + i, "e" + i), 200);
  await until("events", `seen[0][1] === "e0" && seen[${streams - 1}][1] === "e${streams - 1}"`);
  assert.deepEqual(await page.evaluate("[...new Set(performance.getEntriesByType('navigation').map((e) => e.nextHopProtocol))]"), ["h2"]);
});

test("and a long poll and publishes beside them", async () => {
  const polled = page.evaluate(`fetch("/v1/topics/secure.poll/events?wait=60").then((answer) => answer.json()).then((events) => events.map((e) => e.id))`);
  await sleep(200);
  assert.equal(await publish("secure.poll", "p"), 200);
  assert.deepEqual(await polled, ["p"]);
});

for (const protocol of ["cloudevents.json", "signalbox.v1"]) {
  test(`the browser's WebSocket speaks ${protocol}`, async () => {
    const topic = "secure." + protocol;
    await page.evaluate(`window.said = []; window.socket = new WebSocket("/v1/topics/${topic}/events", "${protocol}");
      socket.onmessage = (e) => said.push(JSON.parse(e.data)); socket.onclose = (e) => said.push({ closed: e.code }); 0`);
    await until("the marker", protocol === "signalbox.v1" ? "said[0]?.op === 'sync'" : "said[0]?.type === 'signalbox.sync'");
    const event = `{ specversion: "1.0", id: "mine", source: "/page", type: "t", data: { text: "🐻" } }`;
    await page.evaluate(protocol === "signalbox.v1"
      ? `socket.send(JSON.stringify({ op: "publish", ref: "1", event: ${event} }))` : `socket.send(JSON.stringify(${event}))`);
    await until("its own event", `said.some((m) => (m.event ?? m).id === "mine" && (m.event ?? m).data.text === "🐻")`);
    if (protocol === "signalbox.v1") await until("the receipt", `said.some((m) => m.op === "receipt" && m.receipt.outcome === "accepted")`);
    await page.evaluate("socket.close(1000)");
    await until("the end in good order", "said.at(-1).closed === 1000");
  });
}

test("a page learns of a reset, which a failed handshake would hide from it", async () => {
  await page.evaluate(`window.said = []; window.socket = new WebSocket("/v1/topics/secure.0/events?cursor=@1.zzzzzzzz", "signalbox.v1");
    socket.onmessage = (e) => said.push(JSON.parse(e.data)); socket.onclose = (e) => said.push({ closed: e.code }); 0`);
  await until("the reset and its code", "said[0]?.code === 'cursor_foreign' && said[1]?.closed === 4410");
});

test("a page of another origin is kept out", async () => {
  const other = await chromium.open(broker.url.replace("127.0.0.1", "localhost") + "/");
  for (let i = 0; !(await other.evaluate("location.href")).startsWith("https://localhost") && i < 1200; i++) await sleep(50);
  await other.evaluate(`window.ended = 0; new WebSocket("${broker.url.replace("https", "wss")}/v1/topics/a/events", "signalbox.v1").onclose = (e) => { ended = e.code }; 0`);
  for (let i = 0; (await other.evaluate("ended")) === 0 && i < 1200; i++) await sleep(50);
  assert.equal(await other.evaluate("ended"), 1006);
});

test("a shutdown tells the page to come back", async () => {
  await page.evaluate(`window.said = []; window.socket = new WebSocket("/v1/topics/secure.0/events", "signalbox.v1");
    socket.onopen = () => said.push("open"); socket.onclose = (e) => said.push(e.code); 0`);
  await until("the socket", "said[0] === 'open'");
  const { code, cut } = await broker.stop("SIGTERM");
  assert.equal(code, 0);
  assert.ok(!cut, "open streams, or connections that the browser made in advance, held the broker up");
  await until("the code", "said.at(-1) === 1012");
});
