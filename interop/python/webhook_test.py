# SPDX-License-Identifier: Apache-2.0
"""A receiver of webhooks in Python: v1 by the library of Standard Webhooks, v1a by PyNaCl's Ed25519."""
import base64
import json
import os
import re
import subprocess
import tempfile
import threading
import unittest
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from nacl.signing import VerifyKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from broker import SECONDS
from sdk_test import Result, main

SECRETS = ["whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]
DATA = {"zone": "Bär 🐻", "amp": "<&>", "list": [1, 2.50]}


class Sink(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers.items()), body))
        first = len(self.server.got) == 1
        self.send_response(500 if first and self.server.fail_first else 204)
        self.end_headers()
        if len(self.server.got) == self.server.want:
            self.server.done.set()

    def log_message(self, *_):
        pass


class Webhooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.broker = subprocess.Popen(
            [os.environ["SIGNALBOX_BIN"], "serve", "--data", cls.dir.name + "/data", "--listen", "127.0.0.1:0", "--webhook-allow", "127.0.0.0/8"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        cls.url = re.search(r"http://127\.0\.0\.1:\d+", cls.broker.stdout.readline()).group()
        threading.Thread(target=cls.broker.stdout.read, daemon=True).start()  # the banner must not fill the pipe

    @classmethod
    def tearDownClass(cls):
        cls.broker.terminate()
        cls.broker.wait(SECONDS)
        cls.dir.cleanup()

    def receive(self, config, events=3, fail_first=False):
        """Subscribes a sink, publishes, and returns the requests that came."""
        sink = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        sink.got, sink.want, sink.done, sink.fail_first = [], events + fail_first, threading.Event(), fail_first
        threading.Thread(target=sink.serve_forever, daemon=True).start()
        self.addCleanup(sink.server_close)
        self.addCleanup(sink.shutdown)
        topic = "interop.webhook." + uuid.uuid4().hex[:12]
        document = {"protocol": "HTTP", "sink": f"http://127.0.0.1:{sink.server_port}/hook", "config": {"topics": [topic], **config}}
        answer = requests.post(self.url + "/v1/subscriptions", json=document, timeout=SECONDS)
        self.assertEqual(answer.status_code, 201, answer.text)
        self.assertNotIn("whsec_", answer.text)
        for i in range(events):
            event = {"specversion": "1.0", "id": str(i), "source": "/interop/python", "type": "interop.webhook", "subject": "k", "data": DATA}
            answer = requests.post(f"{self.url}/v1/topics/{topic}/events", data=json.dumps(event).encode(),
                                   headers={"Content-Type": "application/cloudevents+json"}, timeout=SECONDS)
            self.assertEqual(answer.status_code, 200, answer.text)
        self.assertTrue(sink.done.wait(SECONDS), f"{len(sink.got)} requests came")
        return sink.got

    def test_v1_by_the_library(self):
        for headers, body in self.receive({"signature": "v1", "secrets": SECRETS}, fail_first=True):
            self.assertEqual(headers["Webhook-Signature"].count("v1,"), 2)
            for secret in SECRETS:
                self.assertEqual(Webhook(secret).verify(body, headers)["data"], DATA)
            with self.assertRaises(WebhookVerificationError):
                Webhook(SECRETS[0]).verify(body + b" ", headers)

    def test_v1a_by_ed25519(self):
        keys = requests.get(self.url + "/.well-known/webhook-keys", timeout=SECONDS).json()["keys"]
        key = VerifyKey(base64.b64decode(keys[0]["public"].removeprefix("whpk_")))
        got = self.receive({})
        self.assertEqual([json.loads(body)["id"] for _, body in got], ["0", "1", "2"])
        self.assertEqual(len({headers["Webhook-Id"] for headers, _ in got}), 3)
        for headers, body in got:
            version, signature = headers["Webhook-Signature"].split(",")
            self.assertEqual(version, "v1a")
            signed = f"{headers['Webhook-Id']}.{headers['Webhook-Timestamp']}.".encode() + body
            key.verify(signed, base64.b64decode(signature))

    def test_binary_mode(self):
        for headers, body in self.receive({"content_mode": "binary"}):
            self.assertEqual(json.loads(body), DATA)
            self.assertEqual((headers["Ce-Type"], headers["Ce-Subject"], headers["Content-Type"]), ("interop.webhook", "k", "application/json"))


if __name__ == "__main__":
    main()
