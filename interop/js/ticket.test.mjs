// SPDX-License-Identifier: Apache-2.0
// Canonical JSON, Ed25519 and hashes of the ticket protocol, reproduced with
// libraries that are none of ours.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as ed25519 from "@noble/ed25519";
import canonicalize from "canonicalize";

const vectors = JSON.parse(readFileSync(new URL("../../api/ticket/vectors.json", import.meta.url), "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const keys = Object.fromEntries(vectors.keys.map((k) => [k.agent, { seed: bytes(k.seed), public: bytes(k.public) }]));
const canonical = (text) => canonicalize(JSON.parse(text));

function unsigned(envelope) {
  const { sig, ...message } = JSON.parse(envelope);
  assert.match(sig, /^ed25519:/);
  return { signed: canonicalize(message), signature: Uint8Array.from(Buffer.from(sig.slice(8), "base64url")) };
}

test("public keys of tickets", async () => {
  for (const key of Object.values(keys)) assert.deepEqual(await ed25519.getPublicKeyAsync(key.seed), key.public);
});

test("canonical form", () => {
  for (const v of vectors.values) assert.equal(canonical(v.input), v.canonical, v.name);
});

test("signatures of messages", async () => {
  for (const v of vectors.messages) {
    const { signed, signature } = unsigned(v.envelope);
    assert.equal(signed, v.signed, v.name);
    const text = new TextEncoder().encode(signed);
    assert.equal(await ed25519.verifyAsync(signature, text, keys[v.key].public), v.valid, v.name);
    if (v.valid) assert.deepEqual(await ed25519.signAsync(text, keys[v.key].seed), signature, v.name);
  }
});

test("hashes of slices and plans", () => {
  for (const v of [...vectors.slices, ...vectors.plans]) {
    const out = canonical(v.input);
    assert.equal(out, v.canonical, v.name);
    assert.equal("sha256:" + createHash("sha256").update(out).digest("hex"), v.hash, v.name);
  }
});
