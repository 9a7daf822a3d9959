// SPDX-License-Identifier: Apache-2.0
// A page in headless Chromium follows with the browser's own EventSource while
// the broker is killed, stopped and started again.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Broker } from "./lib/broker.mjs";
import { Chromium } from "./lib/chromium.mjs";
import { eventsURL } from "./lib/client.mjs";

const topic = "page.alpha", otherTopic = "elsewhere", type = "interop.page";
const sources = {
  plain: `/v1/topics/${topic}/events`,
  pattern: "/v1/events?topics=page.*",
  named: `/v1/topics/${topic}/events?named=true`,
};

const dir = mkdtempSync(join(tmpdir(), "interop-browser-"));
let broker, chromium, page;
const receipts = []; // of the events of topic, in order
let restarts = 0;

before(async () => {
  broker = await Broker.start(dir);
  chromium = await Chromium.start();
  console.log("#", chromium.version);
});

after(async () => {
  await chromium?.stop();
  await broker?.stop("SIGTERM");
  rmSync(dir, { recursive: true, force: true });
});

// publish repeats an event until it is acknowledged: that is what a producer
// does while the broker is away, and deduplication makes it safe.
async function publish(to, id) {
  for (let tries = 0; tries < 300; tries++) {
    try {
      const answer = await fetch(eventsURL(to, broker.url), {
        method: "POST",
        headers: { "content-type": "application/json", "ce-specversion": "1.0", "ce-id": id, "ce-source": "/interop/node", "ce-type": type },
        body: JSON.stringify({ id }), signal: AbortSignal.timeout(10_000),
      });
      if (answer.ok) return await answer.json();
      assert.equal(answer.status, 503, "only a broker that shuts down may refuse: " + await answer.text());
    } catch (e) {
      if (e instanceof assert.AssertionError) throw e;
    }
    await sleep(50);
  }
  assert.fail(`the event ${id} was never acknowledged`);
}

async function publishNext(n) {
  for (let i = 0; i < n; i++) receipts.push(await publish(topic, String(receipts.length + 1)));
}

async function restart(signal) {
  const ended = await broker.stop(signal);
  await sleep(300); // connections are refused for a while
  broker = await Broker.start(dir, broker.port);
  restarts++;
  return ended;
}

// open makes the page write down all that its EventSources report.
const open = (urls, type) => `
  window.seen = {}; window.sources = {};
  for (const [name, url] of Object.entries(${JSON.stringify(urls)})) {
    const log = window.seen[name] = [], source = window.sources[name] = new EventSource(url);
    const note = (kind) => (e) => log.push({ kind, id: e.lastEventId, data: e.data, state: source.readyState });
    for (const kind of ["open", "error", "message", ${JSON.stringify(type)}, "signalbox.sync", "signalbox.reset"]) {
      source.addEventListener(kind, note(kind));
    }
  }`;

const seen = () => page.evaluate("window.seen");

// until waits for the page to have seen something.
async function until(what, holds, seconds = 60) {
  for (const deadline = Date.now() + seconds * 1000; Date.now() < deadline; await sleep(50)) {
    if (holds(await seen())) return;
  }
  assert.fail(`the page has not seen ${what} after ${seconds} s: ` +
    JSON.stringify(Object.entries(await seen()).map(([name, log]) => [name, log.length, ...log.slice(-3)])));
}

const kindOf = (name) => (name === "named" ? type : "message");
const events = (name, log) => log.filter((e) => e.kind === kindOf(name));
const all = (check) => (logs) => Object.entries(logs).every(([name, log]) => check(name, log));
const everything = () => until("all events", all((name, log) => events(name, log).length >= receipts.length));
const connected = () => until(`${restarts} reconnections`, all((name, log) => log.filter((e) => e.kind === "signalbox.sync").length > restarts));

// assertAllSeen: every event once, in order, under its cursor; one sync marker
// for each connection; never given up.
async function assertAllSeen() {
  await everything();
  await connected();
  for (const [name, log] of Object.entries(await seen())) {
    assert.deepEqual(events(name, log).map((e) => [JSON.parse(e.data).data.id, e.id]), receipts.map((r) => [r.id, r.cursor]), name);
    const kinds = log.map((e) => e.kind).filter((k) => k !== kindOf(name) && k !== "error");
    assert.deepEqual(kinds, Array(restarts + 1).fill(["open", "signalbox.sync"]).flat(), name);
    assert.ok(log.every((e) => e.state !== 2), name + ": the EventSource gave up");
    for (const sync of log.filter((e) => e.kind === "signalbox.sync")) {
      assert.equal(JSON.parse(sync.data).cursor, sync.id);
    }
  }
}

// resumedFrom lists the Last-Event-ID of every request that reached the broker
// for a source.
const resumedFrom = (name) =>
  page.requests().filter((r) => r.url === broker.url + sources[name]).map((r) => r.headers["Last-Event-ID"]);

test("the page catches up and follows", async () => {
  await publishNext(20);
  page = await chromium.open(broker.url + "/");
  await page.evaluate(open(sources, type));
  await connected();
  await publishNext(20);
  await assertAllSeen();
});

test("it resumes after kill -9 while events are published", async () => {
  for (let round = 0; round < 2; round++) {
    const publishing = publishNext(200);
    const goal = receipts.length + 60;
    while (receipts.length < goal) await sleep(1);
    assert.equal((await restart("SIGKILL")).killedBy, "SIGKILL");
    await publishing;
    await assertAllSeen();
  }
});

test("it resumes after kill -9 while nothing is published", async () => {
  await restart("SIGKILL");
  await connected();
  await publishNext(3);
  await assertAllSeen();
});

test("it resumes after a graceful restart", async () => {
  const publishing = publishNext(100);
  const goal = receipts.length + 30;
  while (receipts.length < goal) await sleep(1);
  const { code, cut } = await restart("SIGTERM");
  assert.equal(code, 0);
  assert.ok(!cut, "open streams held the broker up");
  await publishing;
  await assertAllSeen();
});

test("every reconnection told the last id it had", async () => {
  for (const [name, log] of Object.entries(await seen())) {
    const before = []; // the id that the source had when it opened
    let last;
    for (const e of log) {
      if (e.kind === "open") before.push(last);
      last = e.id || last;
    }
    assert.deepEqual(resumedFrom(name), before, name);
  }
});

test("a heartbeat moves a reader on for whom nothing came", async () => {
  const elsewhere = await publish(otherTopic, "elsewhere-1");
  // Two heartbeats: the first may carry what the reader had when it last looked.
  await sleep(40_000);
  await restart("SIGKILL");
  await publishNext(1);
  await assertAllSeen();
  for (const name of Object.keys(sources)) assert.equal(resumedFrom(name).at(-1), elsewhere.cursor, name);
});

test("a cursor of a lost data directory is told, not hidden", async () => {
  // An EventSource gives up for good at any answer but 200. It must learn in
  // the stream that it cannot go on, keep its id and not ask again at once.
  await broker.stop("SIGTERM");
  const fresh = mkdtempSync(join(tmpdir(), "interop-browser-"));
  try {
    broker = await Broker.start(fresh, broker.port);
    await until("a reset", all((name, log) => log.some((e) => e.kind === "signalbox.reset")));
    const requests = page.requests().length;
    for (const [name, log] of Object.entries(await seen())) {
      const reset = log.find((e) => e.kind === "signalbox.reset");
      const facts = JSON.parse(reset.data);
      assert.equal(facts.code, "cursor_foreign", name);
      for (const fact of ["oldest", "head", "topics", "detail"]) assert.ok(fact in facts, `${name}: no ${fact} in ${reset.data}`);
      assert.equal(reset.id, log.findLast((e) => e.id && e !== reset).id, name);
    }
    await sleep(4000); // an ordinary retry would come within 3 s
    assert.equal(page.requests().length, requests);
    for (const name of Object.keys(sources)) assert.equal(await page.evaluate(`sources.${name}.readyState`), 0);
  } finally {
    await broker.stop("SIGKILL");
    rmSync(fresh, { recursive: true, force: true });
  }
});
