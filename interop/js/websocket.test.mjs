// SPDX-License-Identifier: Apache-2.0
// The package ws, which most programs for Node.js use.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import { CloudEvent, HTTP } from "cloudevents";
import WebSocket from "ws";
import { eventsURL, poll } from "./lib/client.mjs";

const newTopic = () => "interop.ws." + randomUUID();

// open returns a socket and a function that returns the next message.
async function open(topic, protocol, query = "", options = {}) {
  const socket = new WebSocket(eventsURL(topic).replace(/^http/, "ws") + query, [protocol], options);
  const messages = [], waiting = [];
  socket.on("message", (data, binary) => {
    assert.equal(binary, false);
    const said = JSON.parse(data.toString());
    if (waiting.length) waiting.shift()(said);
    else messages.push(said);
  });
  await once(socket, "open");
  assert.equal(socket.protocol, protocol);
  return { socket, next: () => (messages.length ? Promise.resolve(messages.shift()) : new Promise((resolve) => waiting.push(resolve))) };
}

const made = (data) => new CloudEvent({ type: "interop.ws", source: "/interop/node", data });
const written = (event) => HTTP.structured(event).body;

test("ws: the events of the SDK go and come back", { timeout: 60_000 }, async () => {
  const topic = newTopic();
  const { socket, next } = await open(topic, "cloudevents.json");
  assert.equal(socket.extensions, ""); // the library offers compression
  assert.equal((await next()).type, "signalbox.sync");
  for (let i = 0; i < 10; i++) {
    const event = made({ i, text: "Größe ≥ 3 🐻" });
    socket.send(written(event));
    const now = HTTP.toEvent({ headers: { "content-type": "application/cloudevents+json" }, body: JSON.stringify(await next()) });
    assert.deepEqual([now.id, now.data], [event.id, event.data]);
  }
  assert.equal(JSON.parse((await poll(topic)).body).length, 10);
  socket.close(1000, "done");
  assert.equal((await once(socket, "close"))[0], 1000);
});

test("ws: receipts, acknowledgements and a window", { timeout: 60_000 }, async () => {
  const { socket, next } = await open(newTopic(), "signalbox.v1", "?window=2");
  const refs = [], cursors = [];
  for (let i = 0; i < 20; i++) socket.send(JSON.stringify({ op: "publish", ref: "r" + i, event: JSON.parse(written(made(i))) }));
  while (refs.length < 20 || cursors.length < 20) {
    const said = await next();
    if (said.op === "receipt") refs.push(said.ref);
    if (said.op !== "event") continue;
    cursors.push(said.cursor);
    socket.send(JSON.stringify({ op: "ack", cursor: said.cursor }));
  }
  assert.deepEqual(refs, Array.from({ length: 20 }, (_, i) => "r" + i));
  assert.equal(new Set(cursors).size, 20);
  socket.terminate();
});

test("ws: pings are answered, also while a message is sent in pieces", { timeout: 60_000 }, async () => {
  const { socket, next } = await open(newTopic(), "cloudevents.json");
  await next();
  const text = written(made("x".repeat(1000)));
  socket.send(text.slice(0, 500), { fin: false });
  socket.ping("within");
  assert.equal((await once(socket, "pong"))[0].toString(), "within");
  socket.send(text.slice(500), { fin: true });
  assert.equal((await next()).data, "x".repeat(1000));
  socket.terminate();
});

for (const [what, code, send] of [
  ["binary frames", 1003, (socket) => socket.send(Buffer.from("{}"))],
  ["16 MiB and a byte", 1009, (socket) => socket.send("x".repeat((16 << 20) + 1))],
]) {
  test(`ws: ${what} end the socket with ${code}`, { timeout: 60_000 }, async () => {
    const { socket } = await open(newTopic(), "cloudevents.json", "", { perMessageDeflate: false });
    send(socket);
    assert.equal((await once(socket, "close"))[0], code);
  });
}
