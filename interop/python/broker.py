# SPDX-License-Identifier: Apache-2.0
"""What any HTTP client does with a broker: publish, poll, follow. Nothing here knows the SDK under test."""
import json
import os
import urllib.request

import requests

URL = os.environ["SIGNALBOX_URL"]
SECONDS = 60  # no answer takes as long: a hang is a failure


def events_url(topic):
    return f"{URL}/v1/topics/{topic}/events"


def publish(topic, message, expect=200):
    """Sends what the SDK made, exactly as its README does, and returns the decoded answer."""
    answer = requests.post(events_url(topic), data=message.body, headers=message.headers, timeout=SECONDS)
    assert answer.status_code == expect, f"{answer.status_code} {answer.text}"
    kind = answer.headers["Content-Type"]
    assert kind == ("application/json" if expect == 200 else "application/problem+json"), kind
    return answer.json()


def poll(topic):
    """All events of a topic, each as the text that the broker sent."""
    answer = requests.get(events_url(topic), timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/cloudevents-batch+json"
    assert answer.headers["Signalbox-Synced"] == "true"
    return list(elements(answer.content.decode()))


def follow(topic, cursor=None):
    """The stream up to its sync marker: a list of (id, text) and the marker's id."""
    request = urllib.request.Request(events_url(topic), headers={"Accept": "text/event-stream"})
    if cursor:
        request.add_header("Last-Event-ID", cursor)
    with urllib.request.urlopen(request, timeout=SECONDS) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        received = []
        for name, last_id, data in blocks(stream):
            if name == "signalbox.sync":
                assert json.loads(data)["cursor"] == last_id
                return received, last_id
            assert name == "message", f"{name}: {data}"
            received.append((last_id, data))
    raise AssertionError("the stream ended without a sync marker")


def blocks(stream):
    """Parses an event stream as the HTML standard, section 9.2.6, says; yields (event, last id, data)."""
    name, last_id, data = "", "", []
    for line in stream:
        line = line.decode("utf-8").removesuffix("\n")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "":
            if data:
                yield name or "message", last_id, "\n".join(data)
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last_id = value


DECODER = json.JSONDecoder()


def skip(text, i):
    while text[i] in " \t\r\n,:":
        i += 1
    return i


def elements(text):
    """The source text of every element of a JSON array."""
    i = skip(text, text.index("[") + 1)
    while text[i] != "]":
        _, end = DECODER.raw_decode(text, i)
        yield text[i:end]
        i = skip(text, end)


def member(text, name):
    """The source text of a member's value: decoding and encoding it again would hide that a byte was changed."""
    i = skip(text, text.index("{") + 1)
    while text[i] != "}":
        key, i = DECODER.raw_decode(text, i)
        i = skip(text, i)
        _, end = DECODER.raw_decode(text, i)
        if key == name:
            return text[i:end]
        i = skip(text, end)
    raise AssertionError(f"no member {name} in {text}")
