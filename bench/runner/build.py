# SPDX-License-Identifier: Apache-2.0
"""Builds everything that is measured into out/bin."""
import os
import subprocess
import sys

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(BENCH, "out")
BIN = os.path.join(OUT, "bin")

# name: (folder of the module, package). Each peer has a module of its own, so that its go.sum pins it with
# exactly the dependencies that its authors released it with, and ours stays free of them.
TARGETS = {
    "lg": (".", "./lg"),
    "ours": ("..", "./cmd/signalbox"),
    "nats": ("tools/nats", "github.com/nats-io/nats-server/v2"),
    "centrifugo": ("tools/centrifugo", "github.com/centrifugal/centrifugo/v6"),
}


def note(*words):
    """Progress goes to standard error: standard output is the table."""
    print(*words, file=sys.stderr, flush=True)


def write(name, text):
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, name), "w") as f:
        f.write(text + "\n")


def everything(skip):
    """Returns {name: path} of what could be built. Without the generators there is no benchmark."""
    os.makedirs(BIN, exist_ok=True)
    done = {}
    for name, (folder, package) in TARGETS.items():
        if any(name.startswith(s) for s in skip):
            note(f"bench: {name} is left out")
            continue
        note(f"bench: building {package}")
        path = os.path.join(BIN, name)
        p = subprocess.run(["go", "build", "-o", path, package], cwd=os.path.join(BENCH, folder), capture_output=True, text=True)
        if p.returncode == 0:
            done[name] = path
            continue
        note(f"bench: {package} could not be built, its rows are not measured:\n{p.stderr.strip()[-2000:]}")
        if name == "lg":
            sys.exit(1)
    return done


def version(module):
    """The pinned version of a peer, as its go.mod says."""
    with open(os.path.join(BENCH, "tools", module, "go.mod")) as f:
        for line in f:
            words = line.split()
            package = TARGETS[module][1]
            if package in words and words[-1] != package:
                return words[words.index(package) + 1]
    return "unknown"
