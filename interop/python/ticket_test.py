# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON, Ed25519 and hashes of the ticket protocol, reproduced with libraries that are none of ours."""
import hashlib
import json
import pathlib
import unittest

import rfc8785
from nacl.encoding import URLSafeBase64Encoder
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sdk_test import main

VECTORS = json.loads((pathlib.Path(__file__).parents[2] / "api/ticket/vectors.json").read_text(encoding="utf-8"))
PUBLIC = {k["agent"]: bytes.fromhex(k["public"]) for k in VECTORS["keys"]}
SEED = {k["agent"]: bytes.fromhex(k["seed"]) for k in VECTORS["keys"]}


def number(text):
    """In JSON as JavaScript has it there is one kind of number."""
    value = float(text)
    return int(value) if value.is_integer() else value


def canonical(text):
    return rfc8785.dumps(json.loads(text, parse_int=number, parse_float=number))


def unsigned(envelope):
    message = json.loads(envelope, parse_int=number, parse_float=number)
    signature = message.pop("sig")
    assert signature.startswith("ed25519:")
    return rfc8785.dumps(message), URLSafeBase64Encoder.decode(signature[8:].encode() + b"==")


class TicketVectors(unittest.TestCase):
    def test_keys(self):
        for agent, seed in SEED.items():
            self.assertEqual(bytes(SigningKey(seed).verify_key), PUBLIC[agent])

    def test_canonical_form(self):
        for v in VECTORS["values"]:
            self.assertEqual(canonical(v["input"]).decode(), v["canonical"], v["name"])

    def test_signatures(self):
        for v in VECTORS["messages"]:
            signed, signature = unsigned(v["envelope"])
            self.assertEqual(signed.decode(), v["signed"], v["name"])
            try:
                VerifyKey(PUBLIC[v["key"]]).verify(signed, signature)
                valid = True
            except BadSignatureError:
                valid = False
            self.assertEqual(valid, v["valid"], v["name"])
            if valid:  # Ed25519 has one signature for a key and a text
                self.assertEqual(SigningKey(SEED[v["key"]]).sign(signed).signature, signature, v["name"])

    def test_hashes(self):
        for v in VECTORS["slices"] + VECTORS["plans"]:
            out = canonical(v["input"])
            self.assertEqual(out.decode(), v["canonical"], v["name"])
            self.assertEqual("sha256:" + hashlib.sha256(out).hexdigest(), v["hash"], v["name"])


if __name__ == "__main__":
    main()
