// SPDX-License-Identifier: Apache-2.0
// The official CloudEvents SDK for JavaScript publishes to the broker and
// understands what the broker delivers.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { CloudEvent, emitterFor, HTTP, httpTransport, Mode } from "cloudevents";
import { eventsURL, follow, get, poll, send, url } from "./lib/client.mjs";

const order = { zone: 'Bär 🐻 "q" \\ \u2028', pi: 3.1, none: null, list: [1, [], {}] };
const newTopic = () => "interop.js." + randomUUID().slice(0, 12);
const event = (more) => new CloudEvent({ type: "interop.js", source: "/interop/js", ...more });
const jsonEvent = (more) => event({ datacontenttype: "application/json", data: order, ...more });
const modes = { binary: HTTP.binary, structured: HTTP.structured };

// understood is an event of the stream as the SDK reads it in structured mode.
const understood = (text) => HTTP.toEvent({ headers: { "content-type": "application/cloudevents+json" }, body: text });

// assertDelivered: poll and stream bring every event, in order, as it was sent.
async function assertDelivered(topic, sent, receipts) {
  const polled = await poll(topic);
  assert.equal(polled.headers["content-type"], "application/cloudevents-batch+json");
  const streamed = await follow(topic);
  assert.deepEqual(streamed.map((b) => b.lastEventId), receipts.map((r) => r.cursor));
  assert.equal(polled.body.trim(), `[${streamed.map((b) => b.data).join(",")}]`);
  for (const events of [HTTP.toEvent(polled), streamed.map((b) => understood(b.data))]) {
    assert.equal(events.length, sent.length);
    events.forEach((now, i) => {
      for (const added of ["topic", "position", "hlc"]) assert.equal(now[added], receipts[i][added]);
      for (const [name, value] of Object.entries(sent[i].toJSON())) {
        if (value !== undefined && name !== "data_base64") assert.deepEqual(now[name], value, name);
      }
    });
  }
  return polled.body;
}

function assertReceipt(receipt, topic, sent) {
  const { outcome, topic: where, source, id, position } = receipt;
  assert.deepEqual({ outcome, where, source, id }, { outcome: "accepted", where: topic, source: sent.source, id: sent.id });
  assert.match(position, /^[1-9][0-9]*$/);
  assert.match(receipt.cursor, new RegExp(`^@${position}\\.[a-z0-9]{8}$`));
  assert.match(receipt.hlc, /^[0-9]{13}\.[0-9]{5}$/);
}

for (const [mode, encode] of Object.entries(modes)) {
  test(`${mode} mode`, async () => {
    const topic = newTopic();
    const sent = jsonEvent({ subject: "order-1", dataschema: "https://example.com/order.json", partitionkey: "k/1" });
    const receipt = await send(topic, encode(sent));
    assertReceipt(receipt, topic, sent);
    const body = await assertDelivered(topic, [sent], [receipt]);
    assert.ok(body.includes(`"data":${JSON.stringify(order)}}`), "the data's bytes changed: " + body);
  });

  test(`${mode} mode through emitterFor`, async () => {
    const topic = newTopic();
    const answers = [];
    const transport = async (message) => answers.push(await send(topic, message));
    const sent = jsonEvent();
    await emitterFor(transport, { binding: HTTP, mode: mode === "binary" ? Mode.BINARY : Mode.STRUCTURED })(sent);
    assertReceipt(answers[0], topic, sent);
    await assertDelivered(topic, [sent], answers);
  });

  test(`bytes in ${mode} mode`, async () => {
    // Reading them back, the SDK puts each byte into an element of a Uint32Array.
    const topic = newTopic();
    const data = Uint8Array.from({ length: 256 }, (_, i) => i);
    await send(topic, encode(event({ datacontenttype: "application/octet-stream", data })));
    const polled = await poll(topic);
    const [delivered] = JSON.parse(polled.body);
    assert.deepEqual(Buffer.from(delivered.data_base64, "base64"), Buffer.from(data));
    assert.deepEqual([...HTTP.toEvent(polled)[0].data], [...data]);
    assert.deepEqual([...understood(JSON.stringify(delivered)).data], [...data]);
  });

  test(`text in ${mode} mode`, async () => {
    const topic = newTopic();
    const sent = event({ datacontenttype: "text/plain", data: "line 1\r\nline 2 — ∞\n" });
    await assertDelivered(topic, [sent], [await send(topic, encode(sent))]);
  });

  test(`a tombstone in ${mode} mode removes the key`, async () => {
    const topic = newTopic();
    const put = await fetch(`${url}/v1/topics/${topic}`, { method: "PUT", body: '{"cleanup_policy":"compact"}' });
    assert.equal(put.status, 201);
    const sent = jsonEvent({ subject: "T/998" });
    const receipt = await send(topic, encode(sent));
    const state = await get(`/v1/topics/${topic}/state/T%2F998`);
    assert.equal(state.headers.etag, `"@${receipt.position}"`);
    assert.deepEqual(HTTP.toEvent(state).data, order);
    await send(topic, encode(event({ subject: "T/998" })));
    const gone = await get(`/v1/topics/${topic}/state/T%2F998`);
    assert.deepEqual([gone.status, JSON.parse(gone.body).code], [404, "key_unknown"]);
  });
}

test("the SDK's own HTTP transport", async () => {
  const topic = newTopic();
  const answer = await emitterFor(httpTransport(eventsURL(topic)))(jsonEvent());
  assert.equal(JSON.parse(answer.body).outcome, "accepted");
});

test("batch mode", async () => {
  // The SDK reads batches and does not write them; its events serialise themselves.
  const topic = newTopic();
  const sent = Array.from({ length: 5 }, (_, i) => jsonEvent({ sequence: String(i).padStart(3, "0") }));
  const message = { headers: { "content-type": "application/cloudevents-batch+json; charset=utf-8" }, body: JSON.stringify(sent) };
  const receipts = await send(topic, message);
  receipts.forEach((receipt, i) => assertReceipt(receipt, topic, sent[i]));
  await assertDelivered(topic, sent, receipts);
});

test("typed extensions in structured mode", async () => {
  const topic = newTopic();
  const sent = jsonEvent({ flag: true, off: false, zero: 0, negative: -5, most: 2147483647, word: "false", uni: "Größe ≥ 3 🐻" });
  await assertDelivered(topic, [sent], [await send(topic, HTTP.structured(sent))]);
});

test("extensions in binary mode are strings", async () => {
  // Headers have no types. The values are those of the type system's canonical form.
  const topic = newTopic();
  await send(topic, HTTP.binary(jsonEvent({ flag: true, off: false, zero: 0, negative: -5 })));
  const [{ flag, off, zero, negative }] = JSON.parse((await poll(topic)).body);
  assert.deepEqual({ flag, off, zero, negative }, { flag: "true", off: "false", zero: "0", negative: "-5" });
});

test("the same event again is a duplicate in either mode", async () => {
  const topic = newTopic();
  const sent = jsonEvent({ subject: "s", count: 7 });
  const first = await send(topic, HTTP.binary(sent));
  for (const encode of Object.values(modes)) {
    assert.deepEqual(await send(topic, encode(sent)), { ...first, outcome: "duplicate" });
  }
  const problem = await send(topic, HTTP.binary(sent.cloneWith({ subject: "other" })), 409);
  assert.equal(problem.code, "id_reused");
});

test("what the SDK does not encode", async (t) => {
  // HTTP binding 3.1.3.2 asks for percent-encoding; this SDK does none in either direction.
  const topic = newTopic();
  await t.test("a character that a header cannot hold never leaves the client", async () => {
    await assert.rejects(send(topic, HTTP.binary(jsonEvent({ subject: "Größe ≥ 3" }))), TypeError);
  });
  await t.test("one of Latin-1 leaves as its Latin-1 byte, which is refused", async () => {
    const problem = await send(topic, HTTP.binary(jsonEvent({ subject: "Bär" })), 400);
    assert.deepEqual([problem.code, problem.field.toLowerCase()], ["header_invalid", "ce-subject"]);
  });
  await t.test("a percent sign alone is refused, not guessed at", async () => {
    const problem = await send(topic, HTTP.binary(jsonEvent({ subject: "100%" })), 400);
    assert.equal(problem.code, "header_invalid");
  });
  await t.test("encoded by the program it arrives", async () => {
    await send(topic, HTTP.binary(jsonEvent({ subject: encodeURIComponent('Bär 🐻 100% "q"') })));
    const [now] = HTTP.toEvent(await poll(topic));
    assert.equal(now.subject, 'Bär 🐻 100% "q"');
  });
});

test("falsy data stays what it is", async () => {
  // The broker delivers it; reading structured events, the SDK loses it.
  const topic = newTopic();
  for (const data of [false, 0, "", null]) await send(topic, HTTP.structured(jsonEvent({ data })));
  const polled = await poll(topic);
  assert.deepEqual(JSON.parse(polled.body).map((e) => e.data), [false, 0, "", null]);
  assert.deepEqual(HTTP.toEvent(polled).map((e) => e.data), [false, 0, "", null]);
  assert.deepEqual((await follow(topic)).map((b) => understood(b.data).data), [undefined, undefined, undefined, undefined]);
});

test("a string as JSON data in binary mode is refused", async () => {
  // The SDK sends it without quotation marks, under the content type JSON that
  // it fills in by itself; that is no JSON.
  const problem = await send(newTopic(), HTTP.binary(event({ data: "hello" })), 400);
  assert.equal(problem.code, "data_invalid");
});
