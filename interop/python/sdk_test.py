# SPDX-License-Identifier: Apache-2.0
"""The official CloudEvents SDK for Python publishes to the broker and understands what the broker delivers."""
import base64
import json
import sys
import unittest
import uuid
from datetime import datetime, timezone

import requests
from cloudevents.core.bindings.http import (
    HTTPMessage, from_http_event, to_binary_event, to_structured_event)
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.conversion import to_binary as old_to_binary
from cloudevents.v1.conversion import to_structured as old_to_structured
from cloudevents.v1.http import CloudEvent as OldCloudEvent
from cloudevents.v1.http import from_json as old_from_json

from broker import SECONDS, URL, events_url, follow, member, poll, publish

# Escapes, digits that a float would lose, and members in no alphabetical order.
ORDER = {"zone": "Bär 🐻 \"q\" \\ \u2028", "big": 9007199254740993, "pi": 3.10, "none": None, "list": [1, [], {}]}


def event(data=None, **attributes):
    return CloudEvent({"type": "interop.python", "source": "/interop/python", **attributes}, data)


def json_event(**attributes):
    return event(ORDER, datacontenttype="application/json", **attributes)


def understood(text):
    """An event as the SDK reads it from structured mode."""
    return from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, text.encode()))


class PythonSDK(unittest.TestCase):
    def setUp(self):
        self.topic = "interop.python." + uuid.uuid4().hex[:12]

    def put(self, policy):
        answer = requests.put(f"{URL}/v1/topics/{self.topic}", json=policy, timeout=SECONDS)
        self.assertEqual(answer.status_code, 201, answer.text)

    def assert_receipt(self, receipt, sent, outcome="accepted"):
        self.assertEqual(receipt["outcome"], outcome)
        self.assertEqual((receipt["topic"], receipt["source"], receipt["id"]), (self.topic, sent.get_source(), sent.get_id()))
        self.assertRegex(receipt["position"], r"^[1-9][0-9]*$")
        self.assertRegex(receipt["cursor"], rf"^@{receipt['position']}\.[a-z0-9]{{8}}$")
        self.assertRegex(receipt["hlc"], r"^[0-9]{13}\.[0-9]{5}$")

    def assert_delivered(self, sent, receipts, wire_data=None):
        """Poll and stream bring every event, in order, as the SDK sent it."""
        polled = poll(self.topic)
        streamed, synced = follow(self.topic)
        self.assertEqual([i for i, _ in streamed], [r["cursor"] for r in receipts])
        # The marker has the head of the whole log, to which other suites add.
        self.assertGreaterEqual(int(synced[1:].split(".")[0]), int(receipts[-1]["position"]))
        self.assertEqual(polled, [text for _, text in streamed])
        for was, receipt, text in zip(sent, receipts, polled, strict=True):
            now = understood(text)
            attributes = was.get_attributes()
            self.assertEqual({name: now.get_extension(name) for name in attributes}, attributes)
            self.assertEqual(now.get_data(), was.get_data())
            for added in "topic", "position", "hlc":
                self.assertEqual(now.get_extension(added), receipt[added])
            if wire_data is not None:
                self.assertEqual(member(text, "data").encode(), wire_data)
        return polled

    def test_binary(self):
        sent = json_event(subject="order-1", time=datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=timezone.utc))
        message = to_binary_event(sent)
        receipt = publish(self.topic, message)
        self.assert_receipt(receipt, sent)
        self.assert_delivered([sent], [receipt], wire_data=message.body)

    def test_structured(self):
        sent = json_event(subject="order-1", dataschema="https://example.com/order.json")
        message = to_structured_event(sent)
        receipt = publish(self.topic, message)
        self.assert_receipt(receipt, sent)
        self.assert_delivered([sent], [receipt], wire_data=member(message.body.decode(), "data").encode())

    def test_batch(self):
        # The SDK has no batch mode; its JSON format makes the elements.
        sent = [json_event(sequence=f"{i:03}") for i in range(5)]
        body = b"[" + b",".join(JSONFormat().write(e) for e in sent) + b"]"
        receipts = publish(self.topic, HTTPMessage({"content-type": "application/cloudevents-batch+json"}, body))
        for was, receipt in zip(sent, receipts, strict=True):
            self.assert_receipt(receipt, was)
        self.assert_delivered(sent, receipts, wire_data=json.dumps(ORDER).encode())

    def test_resume_after_a_cursor(self):
        sent = [json_event() for _ in range(3)]
        receipts = [publish(self.topic, to_binary_event(e)) for e in sent]
        streamed, _ = follow(self.topic, cursor=receipts[0]["cursor"])
        self.assertEqual([understood(text).get_id() for _, text in streamed], [e.get_id() for e in sent[1:]])

    def test_bytes(self):
        # In structured mode bytes are data_base64, in binary mode the body.
        data = bytes(range(256))
        for encode in to_binary_event, to_structured_event:
            with self.subTest(encode.__name__):
                self.setUp()
                sent = event(data, datacontenttype="application/octet-stream")
                receipt = publish(self.topic, encode(sent))
                text, = self.assert_delivered([sent], [receipt])
                self.assertEqual(base64.b64decode(json.loads(text)["data_base64"]), data)

    def test_text(self):
        for encode in to_binary_event, to_structured_event:
            with self.subTest(encode.__name__):
                self.setUp()
                sent = event("line 1\r\nline 2 — ∞\n", datacontenttype="text/plain; charset=utf-8")
                self.assert_delivered([sent], [publish(self.topic, encode(sent))])

    def test_typed_extensions_in_structured_mode(self):
        sent = json_event(flag=True, off=False, zero=0, negative=-5, most=2147483647, least=-2147483648,
                          digits="0042", word="false", empty="", uni="Größe ≥ 3 🐻")
        text, = self.assert_delivered([sent], [publish(self.topic, to_structured_event(sent))])
        self.assertEqual([json.loads(text)[n] for n in ("flag", "off", "zero", "digits", "word")], [True, False, 0, "0042", "false"])

    def test_extensions_in_binary_mode_are_strings(self):
        # Headers have no types, so an extension the broker does not know arrives as a String. The SDK writes Python's
        # "True" where the type system's canonical form is "true"; the broker has no way to tell that from text.
        sent = json_event(flag=True, zero=0, negative=-5)
        publish(self.topic, to_binary_event(sent))
        text, = poll(self.topic)
        self.assertEqual([json.loads(text)[n] for n in ("flag", "zero", "negative")], ["True", "0", "-5"])

    def test_percent_encoding(self):
        # This SDK encodes headers as HTTP binding 3.1.3.2 says, also "%" itself: one round on either side.
        awkward = "Bär 🐻 100% \"quoted\" a%20b"
        sent = json_event(subject=awkward, uni=awkward, id="id " + awkward, partitionkey="ключ/1")
        message = to_binary_event(sent)
        self.assertIn("B%C3%A4r%20%F0%9F%90%BB%20100%25%20%22quoted%22%20a%2520b", message.headers["ce-subject"])
        self.assert_delivered([sent], [publish(self.topic, message)])

    def test_same_event_again_is_a_duplicate_in_either_mode(self):
        sent = json_event(subject="s", count=7)
        first = publish(self.topic, to_binary_event(sent))
        self.assert_receipt(first, sent)
        for encode in to_binary_event, to_structured_event:
            again = publish(self.topic, encode(sent))
            self.assertEqual(again, {**first, "outcome": "duplicate"})
        other = publish(self.topic, to_binary_event(json_event(id=sent.get_id(), subject="other")), expect=409)
        self.assertEqual((other["code"], other["retryable"]), ("id_reused", False))
        self.assertEqual(len(poll(self.topic)), 1)

    def test_state_and_tombstone(self):
        # No data and a key is a tombstone; the SDK sends no body and, in structured mode, no data member.
        self.put({"cleanup_policy": "compact"})
        url = f"{URL}/v1/topics/{self.topic}/state/T%2F998"
        for encode in to_binary_event, to_structured_event:
            with self.subTest(encode.__name__):
                sent = json_event(subject="T/998")
                receipt = publish(self.topic, encode(sent))
                answer = requests.get(url, timeout=SECONDS)
                self.assertEqual(answer.headers["ETag"], f'"@{receipt["position"]}"')
                now = from_http_event(HTTPMessage(dict(answer.headers), answer.content))
                self.assertEqual((now.get_id(), now.get_data()), (sent.get_id(), ORDER))
                publish(self.topic, encode(event(subject="T/998")))
                gone = requests.get(url, timeout=SECONDS)
                self.assertEqual((gone.status_code, gone.json()["code"]), (404, "key_unknown"))

    def test_readme_example(self):
        # The SDK's README names no content type. In structured mode data is then JSON (JSON format 3.1); in binary mode
        # no Content-Type goes out and nothing may be inferred, so readers get the body as bytes.
        sent = event({"message": "Hello World!"})
        for encode in to_structured_event, to_binary_event:
            publish(self.topic, encode(CloudEvent({**sent.get_attributes(), "id": encode.__name__}, sent.get_data())))
        structured, binary = (json.loads(text) for text in poll(self.topic))
        self.assertEqual((structured["data"], structured["datacontenttype"]), (sent.get_data(), "application/json"))
        self.assertEqual(json.loads(base64.b64decode(binary["data_base64"])), sent.get_data())
        self.assertNotIn("datacontenttype", binary)

    def test_version_1_api(self):
        # The interface of SDK 1.x, which most programs in the field still use.
        for encode in old_to_binary, old_to_structured:
            with self.subTest(encode.__name__):
                self.setUp()
                sent = OldCloudEvent({"type": "interop.python", "source": "/interop/old", "subject": "s", "ext": "x",
                                      "datacontenttype": "application/json"}, ORDER)
                headers, body = encode(sent)
                receipt = publish(self.topic, HTTPMessage(headers, body))
                self.assertEqual((receipt["outcome"], receipt["id"]), ("accepted", sent["id"]))
                text, = poll(self.topic)
                now = old_from_json(text)
                self.assertEqual((now.data, {n: now[n] for n in sent}), (ORDER, dict(sent.get_attributes())))

    def test_version_1_api_does_not_encode_headers(self):
        # It sends the value as it is. "a%20b" thus reaches a conforming receiver as "a b", silently, and a lone "%" has
        # no meaning at all: that is refused rather than guessed.
        for subject, arrives in (("a%20b", "a b"), ("100%", None)):
            headers, body = old_to_binary(OldCloudEvent({"type": "t", "source": "/interop/old", "subject": subject}, ORDER))
            message = HTTPMessage({**headers, "content-type": "application/json"}, body)
            if arrives:
                publish(self.topic, message)
                self.assertEqual(understood(poll(self.topic)[-1]).get_subject(), arrives)
            else:
                problem = publish(self.topic, message, expect=400)
                self.assertEqual((problem["code"], problem["field"].lower()), ("header_invalid", "ce-subject"))


class Result(unittest.TextTestResult):
    """Prints one "ok" or "not ok" line for every test, which is what the runner counts."""

    def stopTest(self, test):
        failed = any(getattr(t, "test_case", t) is test for t, _ in self.failures + self.errors)
        print(("not ok " if failed else "ok ") + f"{type(test).__name__}.{test._testMethodName}", flush=True)
        super().stopTest(test)


def main():
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result)
    unittest.main(testRunner=runner)


if __name__ == "__main__":
    main()
