# SPDX-License-Identifier: Apache-2.0
"""The package websockets, as a stock client of the CloudEvents WebSocket binding and as an agent."""
import json
import unittest
import uuid

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from broker import SECONDS, URL, member, poll
from sdk_test import ORDER, Result, main


def event(data=None, **attributes):
    return CloudEvent({"type": "interop.websocket", "source": "/interop/python", "datacontenttype": "application/json", **attributes}, data)


def written(e):
    return JSONFormat().write(e).decode()


def understood(text):
    return from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, text.encode()))


class WebSocket(unittest.TestCase):
    def setUp(self):
        self.topic = "interop.websocket." + uuid.uuid4().hex[:12]

    def open(self, subprotocol, query="", **options):
        options = {"subprotocols": [subprotocol], "open_timeout": SECONDS, "max_size": 32 << 20, **options}
        socket = self.enterContext(connect(f"ws{URL.removeprefix('http')}/v1/topics/{self.topic}/events{query}", **options))
        self.assertEqual(socket.subprotocol, subprotocol)
        return socket

    def test_stock_client(self):
        # It sends events and reads them, and whatever is not of the log has a type of the broker's.
        socket = self.open("cloudevents.json")
        marker = understood(socket.recv(SECONDS))
        self.assertEqual(marker.get_type(), "signalbox.sync")
        sent = [event(ORDER, subject=str(i)) for i in range(20)]
        for e in sent:
            socket.send(written(e))
        for e in sent:
            text = socket.recv(SECONDS)
            now = understood(text)
            self.assertEqual((now.get_id(), now.get_subject(), now.get_data()), (e.get_id(), e.get_subject(), ORDER))
            self.assertEqual(member(text, "data"), member(written(e), "data"))
            self.assertRegex(now.get_extension("position"), r"^[1-9][0-9]*$")
        self.assertEqual(len(poll(self.topic)), 20)
        again = self.open("cloudevents.json", "?cursor=@" + understood(poll(self.topic)[9]).get_extension("position"))
        self.assertEqual(understood(again.recv(SECONDS)).get_id(), sent[10].get_id())

    def test_refusals_are_events(self):
        socket = self.open("cloudevents.json")
        socket.recv(SECONDS)
        socket.send("[]")
        refused = understood(socket.recv(SECONDS))
        self.assertEqual((refused.get_type(), refused.get_data()["problem"]["code"]), ("signalbox.refused", "json_invalid"))
        socket.send(written(event(ORDER)))
        self.assertEqual(understood(socket.recv(SECONDS)).get_data(), ORDER)

    def test_fragments(self):
        # The library sends an iterable as one message of many frames.
        socket = self.open("cloudevents.json")
        socket.recv(SECONDS)
        text = written(event({"text": "é" * 20_000}))
        socket.send(text[i:i + 1000] for i in range(0, len(text), 1000))
        self.assertEqual(member(socket.recv(SECONDS), "data"), member(text, "data"))

    def test_agent(self):
        socket = self.open("signalbox.v1", "?window=3")
        for i in range(10):
            socket.send(json.dumps({"op": "publish", "ref": str(i), "event": json.loads(written(event(i, subject="k")))}))
        receipts, events = [], []
        while len(receipts) < 10 or len(events) < 10:
            said = json.loads(socket.recv(SECONDS))
            if said["op"] == "receipt":
                receipts.append((said["ref"], said["receipt"]["cursor"]))
            elif said["op"] == "event":
                events.append(said["cursor"])
                socket.send(json.dumps({"op": "ack", "cursor": said["cursor"]}))
        self.assertEqual([ref for ref, _ in receipts], [str(i) for i in range(10)])
        self.assertEqual(events, [cursor for _, cursor in receipts])

    def test_ping(self):
        socket = self.open("signalbox.v1")
        self.assertTrue(socket.ping().wait(SECONDS))

    def test_too_large(self):
        socket = self.open("cloudevents.json")
        with self.assertRaises(ConnectionClosedError) as closed:
            socket.send("x" * ((16 << 20) + 1))
            while True:
                socket.recv(SECONDS)
        self.assertEqual(closed.exception.rcvd.code, 1009)

    def test_refused_handshakes(self):
        for options, status in (({"subprotocols": ["cloudevents.avro"]}, 400), ({"origin": "https://elsewhere.example"}, 403)):
            with self.subTest(options), self.assertRaises(InvalidStatus) as refused:
                self.open("cloudevents.json", **options)
            self.assertEqual(refused.exception.response.status_code, status)
            self.assertIn("code", json.loads(refused.exception.response.body))

    def test_reset(self):
        socket = self.open("cloudevents.json", "?cursor=@1.zzzzzzzz")
        reset = understood(socket.recv(SECONDS))
        self.assertEqual((reset.get_type(), reset.get_data()["code"]), ("signalbox.reset", "cursor_foreign"))
        with self.assertRaises(ConnectionClosedError) as closed:
            socket.recv(SECONDS)
        self.assertEqual(closed.exception.rcvd.code, 4410)


if __name__ == "__main__":
    main()
