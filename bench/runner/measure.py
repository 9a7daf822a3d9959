# SPDX-License-Identifier: Apache-2.0
"""Takes the samples: one server at a time, rounds interleaved, disturbed samples recognised."""
import json
import os
import re
import resource
import shutil
import subprocess
import time
import urllib.request

from . import build, servers

TRIES = 3  # of a disturbed sample
SAMPLE_SECONDS = 180

# Topics that are made before they are used, by their names in the generator's arguments.
POLICIES = {"compacted": {"cleanup_policy": "compact"}, "ephemeral": {"durability": "ephemeral"}}


def cpu():
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return sum(v) - v[3] - v[4], sum(v)


def quiet(patience, noise):
    """Waits for a second in which the machine did next to nothing. False: there was none."""
    end = time.time() + patience
    while time.time() < end:
        busy, total = cpu()
        time.sleep(1)
        busy1, total1 = cpu()
        if (busy1 - busy) * 100 < noise * max(1, total1 - total):
            return True
    return False


def generate(binaries, server, args, seconds=SAMPLE_SECONDS, values=None):
    """Runs the generator against a server and returns its result."""
    values = {"{addr}": server.addr, "{pid}": str(server.process.pid), **(values or {})}
    filled = []
    for a in args.split():
        for name, value in values.items():
            a = a.replace(name, value)
        filled.append(a)
    return generator(binaries, filled, seconds)


def generator(binaries, args, seconds=SAMPLE_SECONDS):
    try:
        p = subprocess.run([binaries["lg"], *args], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result after {seconds} s") from None
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[-500:])
    return json.loads(p.stdout)


def benchmark(job):
    """Runs a benchmark of the module's own and returns its time for one operation."""
    package, name = job.args.split()
    pattern = "/".join(f"^{part}$" for part in name.split("/"))
    try:
        p = subprocess.run(["go", "test", "-run", "^$", "-bench", pattern, "-benchtime", "200x", package], cwd=os.path.dirname(build.BENCH),
                           capture_output=True, text=True, timeout=job.seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result after {job.seconds} s") from None
    found = re.search(r"([0-9.]+) ns/op", p.stdout)
    if p.returncode or not found:
        raise RuntimeError((p.stdout + p.stderr).strip()[-500:])
    return {"bench": name, "ns": float(found[1])}


def make_topics(server, args):
    """Makes the topics with a policy of their own that a generator's arguments name."""
    for name, policy in POLICIES.items():
        if f"/{name}/" in args:
            r = urllib.request.Request(f"http://{server.addr}/v1/topics/{name}", method="PUT", data=json.dumps(policy).encode(),
                                       headers={"Content-Type": "application/json"})
            urllib.request.urlopen(r, timeout=10).close()


def register(binaries, server, args):
    """Registers the agent that a generator's arguments have sign, and returns the file of its key. With a store that is
    kept it is there already."""
    if "{key}" not in args:
        return None
    key = os.path.join(server.folder, "desk.key")
    if not os.path.exists(key):
        administrator = os.path.join(server.folder, "data", "administrator.key")
        for command in (["agent", "keygen", key],
                        ["agent", "add", "desk", "--role", "intake", "--key", key, "--administrator", administrator, "--url", f"http://{server.addr}"]):
            p = subprocess.run([binaries["ours"], *command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            if p.returncode:
                raise RuntimeError(p.stderr.strip()[-500:])
    return key


class Bench:
    def __init__(self, binaries, options):
        self.binaries, self.options = binaries, options
        self.samples = {}  # (row, job): {round: sample}
        self.disk = []  # one sample a round
        self.path = os.path.join(build.OUT, "samples.jsonl")
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # A thousand readers are two thousand descriptors, and children inherit the limit.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def run(self, rows):
        shutil.rmtree(os.path.join(build.OUT, "data"), ignore_errors=True)
        try:
            self.load(rows)
            for number in range(self.options.rounds):
                quiet(self.options.patience, self.options.noise)
                self.disk.append(generator(self.binaries, ["disk", "-dir", os.path.join(build.OUT, "data")]))
                for row in rows:
                    # Each round begins with another server, so that a slow drift of the machine favours none.
                    turn = number % len(row.jobs)
                    for job in row.jobs[turn:] + row.jobs[:turn]:
                        if self.has(job):
                            self.sample(row, job, number)
        finally:
            shutil.rmtree(os.path.join(build.OUT, "data"), ignore_errors=True)
        return self.samples, self.disk

    def has(self, job):
        skipped = any(job.name.startswith(s) or job.server.startswith(s) for s in self.options.skip)
        return not skipped and servers.KINDS[job.server][0] in self.binaries

    def load(self, rows):
        done = set()  # rows may share what is stored
        for row in rows:
            for job in row.load:
                if not self.has(job) or (job.store, job.args) in done:
                    continue
                done.add((job.store, job.args))
                build.note(f"bench: storing events for row {row.number} in {job.server}")
                try:
                    with servers.Server(job.server, self.binaries, job.store) as s:
                        self.generate(s, job, 0)
                except (RuntimeError, OSError) as e:
                    build.note(f"bench: storing failed: {e}")

    def sample(self, row, job, number):
        """Keeps the first undisturbed sample of this round, or else the last one, marked."""
        best = None
        for _ in range(TRIES if self.options.patience else 1):
            try:
                if job.benchmark:
                    best = benchmark(job)
                elif job.restart:
                    best = self.restart(job)
                else:
                    with servers.Server(job.server, self.binaries, job.store) as s:
                        quiet(self.options.patience, self.options.noise)
                        best = self.generate(s, job, number)
            except (RuntimeError, OSError) as e:
                build.note(f"bench: row {row.number}, {job.name}: {e}")
                continue
            best["disturbed"] = best.get("ext_cpu_pct", 0) > self.options.noise
            best["fault"] = row.check(best)
            self.record(row, job, number, best)
            if not best["disturbed"]:
                break
        if best is None:
            return
        self.samples.setdefault((row.number, job.name), {})[number] = best
        build.note(f"bench: round {number + 1}, row {row.number}, {job.name}: {best[row.metric] * row.scale:,.4g}{row.unit}"
                   + (" (disturbed)" if best["disturbed"] else "") + (f" ({best['fault']})" if best["fault"] else ""))

    def restart(self, job):
        """Ends a server, after it has published what the job says, and measures how long it takes to be ready again."""
        with servers.Server(job.server, self.binaries, job.store) as s:
            generate(self.binaries, s, job.args)
            if job.restart == "killed":
                s.kill()
        quiet(self.options.patience, self.options.noise)
        with servers.Server(job.server, self.binaries, job.store) as s:
            return {"bench": "restart", "ms": s.ready_ms}

    def generate(self, server, job, number):
        make_topics(server, job.args)
        values = {"{peak80}": str(self.peak80(number))} if "{peak80}" in job.args else {}
        if key := register(self.binaries, server, job.args):
            values["{key}"] = key
        return generate(self.binaries, server, job.args, job.seconds, values)

    def peak80(self, number):
        """Row 1's figure of the same round; without it the row cannot be measured."""
        peak = self.samples.get((1, "ours"), {}).get(number)
        if not peak:
            raise RuntimeError("needs row 1 of the same round: use --only 1,4")
        return round(0.8 * peak["events_s"])

    def record(self, row, job, number, sample):
        with open(self.path, "a") as f:
            f.write(json.dumps({"run": self.started, "round": number, "row": row.number, "job": job.name, **sample}) + "\n")
