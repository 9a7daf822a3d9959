# SPDX-License-Identifier: Apache-2.0
"""Turns samples into the Markdown table."""
import os
import platform
import statistics
import subprocess
from dataclasses import replace

from . import build

HEAD = "| row | ours | beside | theirs | ratio (least..most) | must | reach for | verdict |\n|---|---|---|---|---|---|---|---|"


def number(x):
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def chosen(row, samples, job):
    """The samples that count, {round: sample}: disturbed and faulty ones only where there are no others."""
    everything = samples.get((row.number, job), {})
    good = {n: s for n, s in everything.items() if not s["disturbed"] and not s["fault"]}
    return good or everything


def values(row, taken):
    return {n: s[row.metric] * row.scale for n, s in taken.items()}


def cell(row, taken):
    """A median, and what the server's CPU spent on one event or delivery: that figure suffers least from a busy machine."""
    if not taken:
        return "–"
    doubt = "~" if any(s["disturbed"] or s["fault"] for s in taken.values()) else ""
    spent = [s[k] for s in taken.values() for k in ("srv_cpu_us_per_event", "srv_cpu_us_per_deliv") if k in s]
    return (doubt + number(statistics.median(values(row, taken).values())) + row.unit
            + (f", {number(statistics.median(spent))} µs" if spent else ""))


def bound(row, v, limit):
    """How a must or a reach reads."""
    if limit is None:
        return ""
    return ("≤ " if row.lower else "≥ ") + f"{limit:g}" + ("×" if v.job else row.unit)


def verdict(row, v, figure):
    if v.must is None and v.reach is None:
        return "for comparison"
    if figure is None:
        return "not measured"

    def holds(limit):
        return limit is not None and (figure <= limit if row.lower else figure >= limit)
    if v.must is not None and not holds(v.must):
        return "**missed**"
    if holds(v.reach):
        return "reached"
    return "met" if v.must is not None else "not reached"


def lines(row, samples):
    taken = chosen(row, samples, "ours")
    mine = values(row, taken)
    own = samples.get((row.number, "ours"), {}).values()
    # A machine that others disturbed excuses a fault, if there is a sample without them.
    calm = [s for s in own if not s["disturbed"]] or own
    faults = {s["fault"] for s in calm if s["fault"]}
    out, missed = [], False
    for i, v in enumerate(row.versus):
        beside = chosen(row, samples, v.job)
        theirs = values(row, beside)
        # Ratios are taken within a round, where both ran within a minute of each other.
        ratios = [mine[n] / theirs[n] for n in mine if n in theirs and theirs[n]]
        if not ratios and mine and theirs:
            ratios = [statistics.median(mine.values()) / statistics.median(theirs.values())]
        if v.job:
            figure = statistics.median(ratios) if ratios else None
            shown = "–" if figure is None else f"{figure:.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        else:
            figure, shown = (statistics.median(mine.values()) if mine else None), ""
        if v.enough is not None and mine and theirs and statistics.median(theirs.values()) * v.must > v.enough:
            v = replace(v, job=None, must=v.enough)  # the lower of the two counts
            figure = statistics.median(mine.values())
        word = verdict(row, v, figure)
        if faults and v.must is not None:
            word = "**missed**: " + "; ".join(sorted(faults))
        missed = missed or word.startswith("**")
        first = [f"{row.number}. {row.title}", cell(row, taken)] if i == 0 else ["", ""]
        out.append("| " + " | ".join(first + [v.title, cell(row, beside), shown, bound(row, v, v.must), bound(row, v, v.reach), word]) + " |")
    return out, missed


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / 2**20
    return f"{os.cpu_count()} cores {model}, {memory:.0f} GiB, Linux {platform.release()}"


def output(*command):
    p = subprocess.run(command, cwd=build.BENCH, capture_output=True, text=True)
    return p.stdout.strip() if p.returncode == 0 else ""


def commit():
    name = output("git", "rev-parse", "--short", "HEAD") or "no commit"
    return name + ", changed" if output("git", "status", "--porcelain", "--", ":/") else name


def syncs(disk):
    """The disk under every acknowledgement, as it was before each round."""
    def median(name):
        return number(statistics.median(d[name] for d in disk) / 1000)
    return f"{median('p50_us')} ms, p99 {median('p99_us')}, p99.9 {median('p999_us')}"


def render(rows, samples, disk, binaries, options):
    body, missed = [], False
    for row in rows:
        text, m = lines(row, samples)
        body += text
        missed = missed or m
    everything = [s for per in samples.values() for s in per.values()]
    disturbed = sum(s["disturbed"] for s in everything)
    head = [
        f"Signalbox ({commit()}) beside nats-server {build.version('nats')}, Centrifugo {build.version('centrifugo')} and the floors of `lg`; "
        f"{output('go', 'version').split()[2]}; {machine()}.",
        f"Medians of {options.rounds} interleaved round{'s' if options.rounds > 1 else ''}; ratios within a round; µs: CPU time of the server for one event or delivery. "
        f"{disturbed} of {len(everything)} samples were disturbed by other processes (> {options.noise:g} % of the CPU)"
        f"{', ~ marks figures from such samples alone' if disturbed else ''}."
        + (" Quick run: it shows that the benchmark works, not how fast anything is." if options.quick else ""),
    ]
    head.append(f"A write of 4 KiB and its fdatasync, alone on the disk: median {syncs(disk)} ms.")
    for name in ("ours", "nats", "centrifugo"):
        if name not in binaries:
            head.append(f"Not measured: {name} was left out or could not be built.")
    return "\n\n".join(head) + "\n\n" + HEAD + "\n" + "\n".join(body), missed
