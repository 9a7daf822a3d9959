// SPDX-License-Identifier: Apache-2.0
// What any HTTP client does with a broker: publish, poll, follow. Nothing here
// knows the SDK under test.
import assert from "node:assert/strict";

export const url = process.env.SIGNALBOX_URL;

// No answer takes as long: a hang is a failure.
const patience = 60_000;

export const eventsURL = (topic, base = url) => `${base}/v1/topics/${topic}/events`;

// send posts an SDK's message; the SDK's README does the same.
export async function send(topic, message, expect = 200) {
  const answer = await fetch(eventsURL(topic), {
    method: "POST", headers: message.headers, body: message.body, signal: AbortSignal.timeout(patience),
  });
  const text = await answer.text();
  assert.equal(answer.status, expect, text);
  assert.equal(answer.headers.get("content-type"), expect === 200 ? "application/json" : "application/problem+json");
  return JSON.parse(text);
}

export async function get(path, headers = {}) {
  const answer = await fetch(url + path, { headers, signal: AbortSignal.timeout(patience) });
  return { status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text() };
}

// poll returns the answer as the SDK wants a message: headers and text.
export async function poll(topic) {
  const answer = await get(`/v1/topics/${topic}/events`);
  assert.equal(answer.status, 200, answer.body);
  assert.equal(answer.headers["signalbox-synced"], "true");
  return answer;
}

// blocks parses an event stream as the HTML standard, section 9.2.6, says. It
// yields comments too, as {comment}, so that heartbeats can be seen.
export async function* blocks(body) {
  let rest = "", name = "", data = [], lastEventId = "";
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) {
        yield { comment: line.slice(1).trim(), lastEventId };
        continue;
      }
      const [, field, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (line === "") {
        if (data.length > 0) yield { name: name || "message", lastEventId, data: data.join("\n") };
        name = "", data = [];
      } else if (field === "data") data.push(value);
      else if (field === "event") name = value;
      else if (field === "id") lastEventId = value;
    }
  }
}

// follow reads a topic's stream up to its sync marker.
export async function follow(topic) {
  const answer = await fetch(eventsURL(topic), {
    headers: { accept: "text/event-stream" }, signal: AbortSignal.timeout(patience),
  });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream; charset=utf-8");
  const received = [];
  for await (const block of blocks(answer.body)) {
    if (block.name === "signalbox.sync") return received;
    if (block.name) received.push(block);
  }
  assert.fail("the stream ended without a sync marker");
}
