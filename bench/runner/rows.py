# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: what is run for each, and what it must reach."""
from dataclasses import dataclass, field
from typing import Callable, Optional, Union

READERS = 1000
KEYS = 5000  # of the stored events


@dataclass
class Job:
    """One run of a generator against one server. {addr} and {pid} in its arguments are the server's; {peak80} is 80 % of
    the events/s that row 1 measured in this round."""
    name: str
    server: str
    args: str
    store: Optional[str] = None
    """A folder of stored events that is loaded once and kept; without it the server begins empty."""
    seconds: int = 180
    """After which it is given up."""
    benchmark: bool = False
    """It is a benchmark of the module's own: its package and name are the arguments, and there is no server."""
    restart: Optional[str] = None
    """What is measured is not the run but the restart after it: "stopped" in good order or "killed"."""


@dataclass
class Versus:
    """A comparison of ours with another job, or with a figure (job is None), in the row's metric or in its own."""
    title: str
    job: Optional[str] = None
    must: Optional[float] = None
    reach: Optional[float] = None
    enough: Optional[float] = None
    """A figure of ours that meets the must, however much the other job has."""


@dataclass
class Row:
    number: int
    title: str
    metric: str
    unit: str
    jobs: list[Job]
    versus: list[Versus]
    lower: bool = False
    """Lower is better."""
    scale: float = 1
    load: list[Job] = field(default_factory=list)
    """Runs that fill the stores, once."""
    check: Callable[[dict], Union[str, None]] = lambda sample: None
    """Says what makes a sample worthless."""


PID = "-pid {pid}"
OURS = f'-url http://{{addr}}/v1/topics/bench/events -expect "accepted" {PID}'
FLOOR = f"-url http://{{addr}}/append -expect ok {PID}"
NATS = f"-target nats -addr {{addr}} {PID}"
NATS_ASYNC = f"-target nats-async -addr {{addr}} {PID}"


def table(quick):
    t = "-dur 1s -warm 400ms" if quick else "-dur 4s -warm 1s"
    stored = 100_000 if quick else 500_000
    return [publish(1, 64, t), publish(2, 1, t), batches(t), acknowledgement(t), saturated(t), paced(t),
            catch_up(stored), replay(stored), idle(500 if quick else 2000), echo(t),
            restart(10_000 if quick else 10_000_000), *growth(quick, t), filtered(stored), live(),
            webhooks(quick, t), signed(quick, t), open_tickets(quick, t)]


def publish(number, n, t):
    one = f"pub -mode binary -size 512 -n {n} {t}"
    bare = f"pub -mode plain -size 512 -n {n} {t}"
    many = n > 1
    return Row(
        number, f"publish 512 B, one event per POST, {n} connection{'s' if many else ''}, acknowledged after fsync", "events_s", "/s",
        [Job("ours", "ours", f"{one} {OURS}"),
         Job("floor-pebble", "floor-pebble", f"{one} {FLOOR}"),
         Job("floor-raw", "floor-raw", f"{one} {FLOOR}"),
         Job("floor-pebble-bare", "floor-pebble", f"{bare} {FLOOR}"),
         Job("nats-always", "nats-always", f"{bare} {NATS}")],
        [Versus("floor: POST → Pebble", "floor-pebble", must=0.8 if many else 0.85, reach=None if many else 0.95),
         Versus("floor: POST → raw file", "floor-raw", reach=1.0 if many else None),
         Versus("JetStream, sync always", "nats-always", must=4 if many else 1),
         Versus("POST → Pebble, data without CloudEvents headers", "floor-pebble-bare")])


def batches(t):
    return Row(
        3, "publish in batches of 100 × 512 B, 16 connections, acknowledged after fsync", "events_s", "/s",
        [Job("ours", "ours", f"pub -mode batch -batch 100 -size 512 -n 16 {t} {OURS}"),
         Job("nats-async", "nats-default", f"pub -size 512 -n 1 -inflight 256 {t} {NATS_ASYNC}"),
         Job("nats-async-16", "nats-default", f"pub -size 512 -n 16 -inflight 256 {t} {NATS_ASYNC}")],
        [Versus("JetStream asynchronous, not synced, 1 connection", "nats-async", must=1, reach=3),
         Versus("the same, 16 connections", "nats-async-16")])


def sustained(sample):
    if sample["events_s"] > 0.97 * sample["rate"]:
        return None
    return f"only {sample['events_s']:,.0f}/s of {sample['rate']:,.0f}/s were sustained"


def acknowledgement(t):
    at = f"pub -mode binary -size 512 -n 64 -rate {{peak80}} {t}"
    return Row(
        4, "acknowledgement p99 at 80 % of row 1's peak, open loop, 64 connections", "p99_us", " ms",
        [Job("ours", "ours", f"{at} {OURS}"), Job("floor-pebble", "floor-pebble", f"{at} {FLOOR}")],
        [Versus("limit", must=10, reach=5), Versus("floor: POST → Pebble at the same rate", "floor-pebble")],
        lower=True, scale=1e-3, check=sustained)


def fan_jobs(how):
    """The readers' URL comes first: row 9 uses it too."""
    uni = "http://{addr}/connection/uni_sse?cf_connect=%7B%22subs%22%3A%7B%22bench%22%3A%7B%7D%7D%7D"
    # The data is as large as that of the others: 27 bytes more are the command around it.
    command = '{"channel":"bench","data":{"t":"{ts}","pad":"{pad}"}}'
    common = f"-subs {READERS} {how} {PID}"
    return [
        Job("ours", "ours", 'fan -sub http://{addr}/v1/topics/bench/events?cursor=now -mode binary -size 256 -expect "accepted" '
            f"-url http://{{addr}}/v1/topics/bench/events {common}"),
        Job("floor-fan", "floor-fan", f"fan -sub http://{{addr}}/sse -mode binary -size 256 -expect ok -url http://{{addr}}/publish {common}"),
        Job("centrifugo", "centrifugo", f"fan -sub {uni} -size 283 -data {command} -url http://{{addr}}/api/publish {common}"),
    ]


def whole(sample):
    if sample["missing"] or sample["conn_lost"]:
        return f"{sample['missing']} deliveries missing, {sample['conn_lost']} connections lost"
    return None


def saturated(t):
    return Row(
        5, f"1 → {READERS:,} SSE readers, 256 B, saturated (window 4)", "deliv_s", "/s", fan_jobs(f"-rate 0 -window 4 {t}"),
        [Versus("floor: net/http, no log", "floor-fan", must=0.85, reach=1.0),
         Versus("Centrifugo, keeps nothing", "centrifugo", must=1.15)], check=whole)


def paced(t):
    return Row(
        6, f"publish → SSE reader p99, 50 publishes/s to {READERS:,} readers", "p99_us", " ms", fan_jobs(f"-rate 50 {t}"),
        [Versus("Centrifugo, keeps nothing", "centrifugo", must=0.8),
         Versus("floor: net/http, no log", "floor-fan", reach=1.0)], lower=True, scale=1e-3, check=whole)


def load_ours(topic, events):
    return Job("load", "ours", f"pub -mode batch -batch 500 -size 512 -n 4 -keys {KEYS} -events {events} "
               f'-url http://{{addr}}/v1/topics/{topic}/events -expect "accepted"', "stored-ours")


def load_nats(stream, events, per_subject):
    return Job("load", "nats-default", f"pub -target nats-async -addr {{addr}} -size 512 -inflight 4000 -keys {KEYS} -keep -events {events} "
               f"-stream {stream} -subjects {stream.lower()} -mps {per_subject}", "stored-nats")


def read_ours(topic, count, reps):
    return Job("ours", "ours", f"replay -url http://{{addr}}/v1/topics/{topic}/events -count {count} -reps {reps} {PID}", "stored-ours")


def read_nats(name, target, stream, count, reps):
    return Job(name, "nats-default", f"replay -target {target} -addr {{addr}} -stream {stream} -count {count} -reps {reps} {PID}", "stored-nats")


def catch_up(stored):
    return Row(
        7, f"catch-up: {stored:,} events on {KEYS:,} keys, compacted: connection → sync marker", "ms", " ms",
        [read_ours("compacted", KEYS, 9),
         read_nats("nats-ordered", "nats", "COMPACTED", KEYS, 9),
         read_nats("nats-pull", "nats-pull", "COMPACTED", KEYS, 9)],
        [Versus("JetStream MaxMsgsPerSubject=1, ordered consumer", "nats-ordered", must=1),
         Versus("the same, pull consumer", "nats-pull", must=1), Versus("limit", reach=10)],
        lower=True, load=[load_ours("compacted", stored), load_nats("COMPACTED", stored, 1)])


def replay(stored):
    return Row(
        8, f"replay of {stored:,} events over SSE", "events_s", "/s",
        [read_ours("full", stored, 3), read_nats("nats-pull", "nats-pull", "FULL", stored, 3)],
        [Versus("JetStream, pull consumer", "nats-pull", must=2, reach=3)],
        load=[load_ours("full", stored), load_nats("FULL", stored, -1)])


def filtered(stored):
    """Every tenth key ends in 0, and with it every tenth event."""
    want = Job("ours", "ours", "replay -url http://{addr}/v1/topics/full/events?filter=subject%20LIKE%20%27%250%27 "
               f"-count {stored // 10} -reps 3 {PID}", "stored-ours")
    whole = read_ours("full", stored, 3)
    return Row(
        16, f"bytes to a filtered SSE reader that wants a tenth of {stored:,} events", "bytes", " B",
        [want, Job("whole", whole.server, whole.args, whole.store)],
        [Versus("the same reader without a filter", "whole", must=0.12, reach=0.1)], lower=True, load=[load_ours("full", stored)])


def live():
    def job(name, readers):
        return Job(name, "ours", f"./internal/dispatch BenchmarkLive/{readers}", seconds=600, benchmark=True)
    return Row(
        17, "one event to the 100 readers that it concerns, of 10,000 with different filters: index, wake-ups, polls", "ns", " µs",
        [job("ours", 10_000), job("hundred", 100), job("thousand", 1_000), job("most", 100_000)],
        [Versus("100 readers, all concerned", "hundred", must=5), Versus("1,000 readers", "thousand"), Versus("100,000 readers", "most")],
        lower=True, scale=1e-3)


def webhooks(quick, t):
    """The broker, the sink and, beside, the sink with nobody but the cheapest client."""
    def push(name, signature):
        events = "-events 10000 -warm 2000" if quick else "-events 60000 -warm 10000"
        return Job(name, "ours-pushing", f"push -url http://{{addr}} -signature {signature} {events} {PID}")
    return Row(
        18, "deliveries of webhooks, 512 B, to one fast sink over 64 connections", "events_s", "/s",
        [push("ours", "v1a"), Job("sink", "floor-sink", f"pub -mode plain -size 512 -n 64 {t} -url http://{{addr}}/ {PID}"), push("hmac", "v1")],
        [Versus("the same sink, requests without a broker: the HTTP limit of the machine", "sink", must=0.5, enough=5000),
         Versus("the same, signed with HMAC", "hmac")],
        check=lambda s: None if not s.get("again") and s.get("conns", 0) <= 64 else f"{s['again']} events came again, {s['conns']} connections")


MESSAGE = 1024  # bytes of an envelope
TICKETS = f"-target ticket -key {{key}} -size {MESSAGE} -url http://{{addr}}/"


def signed(quick, t):
    """What is signed is signed before anything is measured: the broker's work is what is compared."""
    ahead = "-signed 20000" if quick else "-signed 120000"
    return Row(
        19, f"signed ticket messages of {MESSAGE} B, one per POST, 64 connections, each opens a ticket", "events_s", "/s",
        [Job("ours", "ours", f'pub {TICKETS} {ahead} -n 64 {t} -expect "accepted" {PID}'),
         Job("unsigned", "ours", f"pub -mode binary -size {MESSAGE} -n 64 {t} {OURS}")],
        [Versus("events of the same size that nobody signed", "unsigned", must=0.4)])


def open_tickets(quick, t):
    """An open ticket has a row, keys that are never forgotten, and a deadline."""
    tickets = 1000 if quick else 10_000
    one = f"pub -mode binary -size 512 -n 64 {t} {OURS}"
    return Row(
        20, f"growth: publish as in row 1 with {tickets:,} open tickets", "events_s", "/s",
        [Job("ours", "ours", one, "stored-tickets"), Job("empty", "ours", one)],
        [Versus("the same on an empty broker", "empty", must=0.909, reach=0.97)],
        load=[Job("load", "ours", f'pub {TICKETS} -n 16 -events {tickets} -expect "accepted" {PID}', "stored-tickets", LOAD_SECONDS)])


def idle(readers):
    def job(j):
        url = j.args.split()[2]
        return Job(j.name, j.server, f"idle -sub {url} -subs {readers} {PID}")
    return Row(
        9, "resident memory per idle SSE connection", "rss_kib_per_conn", " KiB", [job(j) for j in fan_jobs("")],
        [Versus("limit", must=32, reach=10), Versus("floor: net/http", "floor-fan"), Versus("Centrifugo", "centrifugo")], lower=True)


def echo(t):
    return Row(
        10, "echo over WebSocket, 256 B, 100/s, durable: publish → the event on the same socket, p50", "p50_us", " ms",
        [Job("ours", "ours", f"echo -size 256 -rate 100 -url ws://{{addr}}/v1/topics/bench/events?cursor=now {t} {PID}")],
        [Versus("limit", reach=1)], lower=True, scale=1e-3)


LOAD_SECONDS = 1800


def large(events):
    """A store with that many events on 10,000 keys, which rows share."""
    return Job("load", "ours", f"pub -mode batch -batch 500 -size 512 -n 4 -keys 10000 -events {events} "
               '-url http://{addr}/v1/topics/full/events -expect "accepted"', "stored-large", LOAD_SECONDS)


def restart(events):
    more = f'pub -mode binary -size 512 -n 64 -dur 2s -warm 0s -url http://{{addr}}/v1/topics/full/events -expect "accepted" {PID}'
    return Row(
        11, f"restart with {events:,} events, killed while events were published: start → ready", "ms", " ms",
        [Job("ours", "ours", more, "stored-large", restart="killed"), Job("stopped", "ours", more, "stored-large", restart="stopped")],
        [Versus("limit", must=2000, reach=500), Versus("the same, stopped in good order", "stopped")], lower=True, load=[large(events)])


def growth(quick, t):
    """Four ways to grow, each in a store of its own, beside a broker that is empty but for what the same publisher needs.

    The same load runs for a while before anything is measured: an empty store pays for neither flush nor compaction
    in its first seconds, and one that was just filled pays for what its filling left over.
    """
    scale, t = (1000, t) if quick else (1, "-dur 6s -warm 20s")
    events, keys, topics, cursors = 10_000_000 // scale, 1_000_000 // scale, 10_000 // min(scale, 100), 100_000 // scale
    one = f'pub -mode binary -size 512 -n 64 {t} -expect "accepted" {PID}'
    bench, compacted = "-url http://{addr}/v1/topics/bench/events", "-url http://{addr}/v1/topics/compacted/events"
    spread = f"-url http://{{addr}}/v1/topics/t{{topic}}/events -topics {topics}"

    def row(number, what, grown, empty, load):
        return Row(number, f"growth: publish as in row 1 with {what}", "events_s", "/s",
                   [Job("ours", "ours", f"{one} {grown}", load.store), Job("empty", "ours", f"{one} {empty}")],
                   [Versus("the same on an empty broker", "empty", must=0.9, reach=0.97)], load=[load])
    return [
        row(12, f"{events:,} events", "-url http://{addr}/v1/topics/full/events", bench, large(events)),
        row(13, f"{keys:,} keys in a compacted topic, each publish on another", f"{compacted} -keys {keys}", compacted, Job(
            "load", "ours", f'pub -mode batch -batch 500 -size 512 -n 4 -keys {keys} -events {keys} {compacted} -expect "accepted"',
            "stored-keys", LOAD_SECONDS)),
        row(14, f"{topics:,} topics, each publish to another", spread, bench, Job(
            "load", "ours", f'pub -mode batch -batch 10 -size 512 -n 16 -events {10 * topics} {spread} -expect "accepted"', "stored-topics", LOAD_SECONDS)),
        row(15, f"{cursors:,} abandoned cursors on its topic", bench, bench, Job(
            "load", "ours", f"churn -url http://{{addr}} -topic bench -agents {cursors} -days 0 -n 16 {PID}", "stored-cursors", LOAD_SECONDS)),
    ]
