// SPDX-License-Identifier: Apache-2.0
// Streams stay alive and prompt through a proxy that buffers by default and
// closes what is quiet for too long, and are compressed for nobody.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { connect } from "node:http2";
import { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { blocks, eventsURL, send, url } from "./lib/client.mjs";
import { startNginx } from "./lib/nginx.mjs";

const topic = "interop.quiet." + randomUUID().slice(0, 12);
// What fails here comes with the next heartbeat, 15 s late, or not at all. The
// bounds leave room for a machine that is busy with other suites.
const beginning = 10_000, prompt = 10_000, silence = 24_000;
const headers = { accept: "text/event-stream", "accept-encoding": "gzip, deflate, br" };
const leave = new AbortController();
const now = () => performance.now();

// observe writes down when what arrived on a stream; log ends with the stream.
async function observe(open) {
  const o = { began: now(), log: [], ended: false };
  Object.assign(o, await open());
  o.headersAfter = now() - o.began;
  (async () => {
    for await (const b of blocks(o.body)) o.log.push({ ...b, at: now() });
  })().catch(() => {}).finally(() => { o.ended = true; });
  return o;
}

const overHTTP1 = (base) => async () => {
  const answer = await fetch(eventsURL(topic, base), { headers, signal: leave.signal });
  return { status: answer.status, headers: Object.fromEntries(answer.headers), body: answer.body };
};

const overHTTP2 = (base) => async () => {
  const session = connect(base);
  leave.signal.addEventListener("abort", () => session.destroy());
  const stream = session.request({ ":path": new URL(eventsURL(topic, base)).pathname, ...headers });
  const answer = await new Promise((resolve, reject) => stream.once("response", resolve).once("error", reject));
  return { status: answer[":status"], headers: answer, body: Readable.toWeb(stream) };
};

async function until(holds, ms) {
  for (const deadline = now() + ms; now() < deadline && !holds(); await sleep(5));
}

const event = (id) => ({
  headers: { "content-type": "text/plain", "ce-specversion": "1.0", "ce-id": id, "ce-source": "/interop/quiet", "ce-type": "t" },
  body: "forty bytes of data, not one more or less",
});

let nginx;
const ways = {
  "without a proxy": () => overHTTP1(url),
  "nginx by default, HTTP/1.0 to the broker": () => overHTTP1(nginx.plain),
  "nginx with HTTP/1.1 to the broker": () => overHTTP1(nginx.keepalive),
  "nginx with HTTP/2 to the client": () => overHTTP2(nginx.http2),
};
const observed = {}; // by way
const published = {}; // when each event was acknowledged, by id

// All streams are quiet at the same time, to save time: for the marker and two heartbeats,
// which is longer than nginx waits, and then there is time up to the next one.
before(async () => {
  nginx = await startNginx(url);
  await Promise.all(Object.entries(ways).map(async ([name, open]) => { observed[name] = await observe(open()); }));
  await until(() => Object.values(observed).every((o) => o.ended || o.log.length >= 3), 90_000);
  for (const id of ["first", "second"]) {
    await send(topic, event(id));
    published[id] = now();
    await until(() => Object.values(observed).every((o) => o.ended || o.log.some((b) => b.data?.includes(`"id":"${id}"`))), prompt);
  }
});

after(async () => {
  leave.abort();
  await nginx?.stop();
});

for (const name of Object.keys(ways)) {
  test(`${name}: the stream begins at once and uncompressed`, () => {
    const o = observed[name];
    assert.equal(o.status, 200);
    assert.equal(o.headers["content-type"], "text/event-stream; charset=utf-8");
    assert.match(o.headers["cache-control"], /\bno-cache\b.*\bno-transform\b/);
    assert.equal(o.headers["content-encoding"], undefined);
    const sync = o.log.find((b) => b.name === "signalbox.sync");
    assert.ok(o.headersAfter < beginning && sync.at - o.began < beginning, `headers after ${o.headersAfter} ms, sync after ${sync.at - o.began} ms`);
  });

  test(`${name}: a heartbeat comes in time`, () => {
    const { log, began } = observed[name];
    const times = log.filter((b) => b.at < published.first).map((b) => b.at);
    const gaps = [...times, published.first].map((at, i) => at - (times[i - 1] ?? began));
    assert.ok(times.length >= 3, `${times.length} blocks`);
    assert.ok(Math.max(...gaps) < silence, `silent for ${Math.max(...gaps)} ms`);
  });

  test(`${name}: after a quiet time events arrive at once`, () => {
    const o = observed[name];
    assert.equal(o.ended, false, "the stream was cut");
    for (const id of ["first", "second"]) {
      const arrived = o.log.filter((b) => b.name === "message" && b.data.includes(`"id":"${id}"`));
      assert.equal(arrived.length, 1, `${id} arrived ${arrived.length} times`);
      assert.ok(arrived[0].at - published[id] < prompt, `${id} took ${arrived[0].at - published[id]} ms`);
    }
  });
}
