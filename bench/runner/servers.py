# SPDX-License-Identifier: Apache-2.0
"""The servers that are measured. All listen on loopback, on ports that were free, with data in out/data."""
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

from . import build

START_SECONDS = 60
STOP_SECONDS = 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ours(binaries, addr, folder):
    return [binaries["ours"], "serve", "--data", os.path.join(folder, "data"), "--listen", addr]


def pushing(binaries, addr, folder):
    """May send to the generator's sink, and has no other settings than the others."""
    return [*ours(binaries, addr, folder), "--webhook-allow", "127.0.0.0/8"]


def sink(binaries, addr, _):
    return [binaries["lg"], "sink", "-addr", addr]


def floor(log):
    def command(binaries, addr, folder):
        return [binaries["lg"], "floor", "-addr", addr, "-log", log, "-dir", folder, "-life", "60m"]
    return command


def nats(sync):
    def command(binaries, addr, folder):
        path = os.path.join(folder, "nats.conf")
        with open(path, "w") as f:
            f.write(f"listen: {addr}\nserver_name: bench\n"
                    f"jetstream {{ store_dir: {json.dumps(os.path.join(folder, 'data'))}, max_file_store: 20GB {sync} }}\n")
        return [binaries["nats"], "-c", path]
    return command


def centrifugo(binaries, addr, folder):
    host, port = addr.split(":")
    path = os.path.join(folder, "centrifugo.json")
    with open(path, "w") as f:
        json.dump({
            "http_server": {"address": host, "port": port}, "log": {"level": "error"},
            "client": {"insecure": True, "allowed_origins": ["*"], "connection_limit": 0},
            "http_api": {"insecure": True}, "uni_sse": {"enabled": True},
            "channel": {"without_namespace": {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}},
        }, f)
    return [binaries["centrifugo"], "-c", path]


# name: (binary, command, path that answers 200 when it is ready, or None: when it accepts connections)
KINDS = {
    "ours": ("ours", ours, "/readyz"),
    "ours-pushing": ("ours", pushing, "/readyz"),
    "floor-sink": ("lg", sink, None),
    "floor-raw": ("lg", floor("raw"), None),
    "floor-pebble": ("lg", floor("pebble-co"), None),
    "floor-fan": ("lg", floor(""), None),
    "nats-always": ("nats", nats(", sync_interval: always"), None),
    "nats-default": ("nats", nats(""), None),
    "centrifugo": ("centrifugo", centrifugo, None),
}


class Server:
    """One running server. Leaving the with block stops it, and only it."""

    def __init__(self, kind, binaries, store=None, env=None):
        """store names a folder that is kept from one start to the next; without it the server begins empty."""
        self.kind, self.keep, self.env = kind, store is not None, {**os.environ, **(env or {})}
        self.ready_ms = None  # from the start of the process to its being ready
        _, self.command, self.path = KINDS[kind]
        self.binaries = binaries
        self.folder = os.path.join(build.OUT, "data", store or kind)
        self.addr = f"127.0.0.1:{free_port()}"
        self.process = None

    def __enter__(self):
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder, exist_ok=True)
        log = os.path.join(build.OUT, "log", self.kind + ".log")
        os.makedirs(os.path.dirname(log), exist_ok=True)
        began = time.perf_counter()
        with open(log, "w") as f:
            self.process = subprocess.Popen(self.command(self.binaries, self.addr, self.folder), env=self.env,
                                            stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self.wait(log)
        except BaseException:
            self.__exit__()
            raise
        self.ready_ms = (time.perf_counter() - began) * 1000
        return self

    def wait(self, log):
        end = time.time() + START_SECONDS
        while time.time() < end:
            if self.process.poll() is not None:
                with open(log) as f:
                    raise RuntimeError(f"{self.kind} ended at once: {f.read()[-500:]}")
            if self.ready():
                return
            time.sleep(0.01)
        raise RuntimeError(f"{self.kind} was not ready after {START_SECONDS} s")

    def ready(self):
        try:
            if self.path:
                with urllib.request.urlopen(f"http://{self.addr}{self.path}", timeout=2) as r:
                    return r.status == 200
            host, port = self.addr.split(":")
            socket.create_connection((host, int(port)), timeout=1).close()
            return True
        except (OSError, urllib.error.URLError):
            return False

    def kill(self):
        """Ends the server as a crash would."""
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            build.note(f"bench: {self.kind} did not stop in {STOP_SECONDS} s")
            self.process.kill()
            self.process.wait()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
