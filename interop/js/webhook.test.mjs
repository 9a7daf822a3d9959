// SPDX-License-Identifier: Apache-2.0
// A receiver of webhooks in JavaScript: v1 by the library of Standard Webhooks,
// v1a by Node's own Ed25519.
import assert from "node:assert/strict";
import { createPublicKey, randomUUID, verify } from "node:crypto";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Webhook } from "standardwebhooks";
import { Broker } from "./lib/broker.mjs";

const secrets = ["whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="];
const data = { zone: "Bär 🐻", amp: "<&>", list: [1, 2.5] };
const dir = mkdtempSync(join(tmpdir(), "interop-webhook-"));
let broker;

before(async () => { broker = await Broker.start(join(dir, "data"), 0, "--webhook-allow", "127.0.0.0/8"); });
after(async () => { await broker.stop("SIGTERM"); rmSync(dir, { recursive: true }); });

async function post(path, type, body) {
  const answer = await fetch(broker.url + path, { method: "POST", headers: { "content-type": type }, body: JSON.stringify(body) });
  assert.ok(answer.ok, await answer.clone().text());
  return answer;
}

// receive subscribes a sink, publishes three events, and returns the requests.
async function receive(config) {
  const got = [];
  let done;
  const all = new Promise((resolve) => { done = resolve; });
  const sink = createServer(async (request, answer) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    got.push({ headers: request.headers, body: Buffer.concat(chunks) });
    answer.writeHead(204).end();
    if (got.length === 3) done();
  });
  await new Promise((resolve) => sink.listen(0, "127.0.0.1", resolve));
  const topic = "interop.webhook." + randomUUID().slice(0, 12);
  await post("/v1/subscriptions", "application/json", { protocol: "HTTP", sink: `http://127.0.0.1:${sink.address().port}/hook`, config: { topics: [topic], ...config } });
  for (const id of ["0", "1", "2"]) {
    await post(`/v1/topics/${topic}/events`, "application/cloudevents+json", { specversion: "1.0", id, source: "/interop/js", type: "interop.webhook", subject: "k", data });
  }
  await all;
  sink.closeAllConnections();
  sink.close();
  return got;
}

test("v1 by the library", async () => {
  for (const { headers, body } of await receive({ signature: "v1", secrets })) {
    for (const secret of secrets) assert.deepEqual(new Webhook(secret).verify(body.toString(), headers).data, data);
    assert.throws(() => new Webhook(secrets[0]).verify(body.toString() + " ", headers));
  }
});

test("v1a by Ed25519", async () => {
  const { keys } = await (await fetch(broker.url + "/.well-known/webhook-keys")).json();
  const raw = Buffer.from(keys[0].public.replace("whpk_", ""), "base64");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") }, format: "jwk" });
  const got = await receive({});
  assert.deepEqual(got.map(({ body }) => JSON.parse(body).id), ["0", "1", "2"]);
  for (const { headers, body } of got) {
    const [version, signature] = headers["webhook-signature"].split(",");
    assert.equal(version, "v1a");
    const signed = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`), body]);
    assert.ok(verify(null, signed, key, Buffer.from(signature, "base64")));
    assert.ok(!verify(null, Buffer.concat([signed, Buffer.from(" ")]), key, Buffer.from(signature, "base64")));
  }
});
