#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes the tables of docs/measurements/peers.md and README.md from docs/measurements/peers.json.

Each stands between two markers; what is outside them is left alone.
"""

import json
import re
import textwrap
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[2]
NAMES = {
    "nothing": "nothing",
    "taskset": "`taskset` + `chrt`",
    "systemd": "systemd, `AllowedCPUs=`",
    "vfio-isolate": "vfio-isolate",
    "tuned": "TuneD, `realtime`, no reboot",
    "script": "script for cgroup v2",
    "asmp": "**asmp**",
}
COUNTS = {
    "ticks": "ticks",
    "foreign_switches": "switches to foreign tasks",
    "kernel_switches": "switches to kernel threads",
    "device_irqs": "device interrupts",
    "ipis": "IPIs",
    "page_faults": "page faults",
}
# Of one list of what is left.
MOST_LINES = 12


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def counts(row):
    if not row["counts"]:
        return ["n/a"] * len(COUNTS)
    return [round(median(count[kind] for count in row["counts"])) for kind in COUNTS]


def left(row):
    """After undo; after the worst kill; after a kill and the tool's own way back."""
    kills = row["kills"]
    cells = [len(row["left"]) if "left" in row else "n/a"]
    if not kills:
        return [*cells, "no set-up", "no set-up"]
    worst = lambda what: max(len(kill[what]) for kill in kills)
    return [*cells, worst("left"), worst("left_after_undo")]


def ratio(row, asmp_s):
    seconds = median(row["set_up_s"]) if row["set_up_s"] else 0
    return f"{seconds / asmp_s:.1f}" if row["kills"] else "no set-up"


def short(raw):
    head = ["in 10 s", "ticks", "foreign tasks", "kernel threads", "device IRQs", "IPIs"]
    head += ["values left after undo", "after `kill -9`, undo", "lines to write"]
    rows = []
    for row in raw["rows"]:
        after = left(row)
        rows.append([NAMES[row["row"]], *counts(row)[:5], after[0], after[2], row["lines"]])
    words = """The same task and load beside the other ways to do it, in one boot
([peers](docs/measurements/peers.md): how, all figures, what was left behind; asmp leaves the
directory /run/asmp with its lock file):
"""
    return f"{words}\n{table(head, rows)}"


def fenced(lines):
    return "```\n" + "\n".join(lines) + "\n```"


def listed(lines):
    shown = [textwrap.shorten(line, 200, placeholder=" …") for line in lines[:MOST_LINES]]
    more = len(lines) - len(shown)
    return fenced(shown + ([f"… and {more} more"] if more else []))


def full(raw):
    rows = raw["rows"]
    asmp_s = next((median(row["set_up_s"]) for row in rows if row["row"] == "asmp"), 1)
    versions = ", ".join(f"{name} {version}" for name, version in raw["versions"].items())
    parts = [
        f"{raw['date']}, kernel {raw['kernel']}; {versions}; asmp built with the profile "
        f"`{raw['asmp_build']}`."
    ]
    parts[0] = textwrap.fill(parts[0], 100, break_on_hyphens=False)
    head = ["medians of 3, in 10 s", *COUNTS.values(), "set-up time, asmp = 1"]
    head += ["left after undo", "left after `kill -9`", "after `kill -9`, undo", "lines to write"]
    parts.append(
        table(
            head,
            [
                [NAMES[row["row"]], *counts(row), ratio(row, asmp_s), *left(row), row["lines"]]
                for row in rows
            ],
        )
    )
    parts.append("### All repetitions")
    parts.append(
        table(
            ["", *COUNTS.values(), "RCU stalls", "set-up, s", "undo, s"],
            [
                [NAMES[row["row"]]]
                + [", ".join(str(count[kind]) for count in row["counts"]) for kind in COUNTS]
                + [row.get("rcu_stalls", "n/a")]
                + [", ".join(map(str, row[what])) for what in ("set_up_s", "undo_s")]
                for row in rows
            ],
        )
    )
    parts += agreement(rows)
    parts.append("### What was left behind")
    for row in rows:
        lists = [("After the undo", row.get("left", []))]
        for kill in row["kills"]:
            when = f"After `kill -9` at {kill['after_s']} s"
            lists.append((when, kill["left"]))
            worked = "the undo" if kill["undo_worked"] else "the undo, which failed,"
            lists.append((f"{when} and {worked}", kill["left_after_undo"]))
        if error := row.get("error"):
            parts.append(f"{NAMES[row['row']]}: stopped by an error:\n\n{fenced([error])}")
        for when, lines in lists:
            if lines:
                parts.append(f"{NAMES[row['row']]}. {when}, {len(lines)}:\n\n{listed(lines)}")
    parts.append("### What each row did")
    for row in rows:
        name = row["row"]
        for file in [f"{name}.sh"] + (["isolate.sh"] if name == "script" else []):
            text = (HERE / file).read_text().splitlines()
            text = [line for line in text if not re.match(r"#(!| SPDX| shellcheck)", line)]
            parts.append(f"{NAMES[row['row']]} ([{file}](../../tests/vm/peers/{file})):")
            parts.append(fenced(text))
    return "\n\n".join(parts)


def agreement(rows):
    """The neutral counter and `asmp noise` by the second: the start of `asmp noise` is within the
    window of the counter."""
    both = next((row["noise"] for row in rows if "noise" in row), None)
    if not both:
        return []
    cpus = both["asmp"]["cpus"]
    cpu = cpus[0] if isinstance(cpus, list) else next(iter(cpus.values()))

    def total(value):
        return sum(value.values()) if isinstance(value, dict) else value

    ours_s = both["asmp"]["duration_ns"] / 1e9
    names = ["ticks", "foreign_switches", "kernel_switches", "device_interrupts", "ipis"]
    ours = [f"{total(cpu[name]) / ours_s:.0f}" for name in names]
    kinds = list(COUNTS)[:5]
    # A task without a partition is as foreign as any other to `asmp noise`.
    neutral = dict(both["neutral"])
    neutral["foreign_switches"] += neutral["own_switches"]
    theirs = [f"{neutral[kind] / neutral['seconds']:.0f}" for kind in kinds]
    return [
        "### The neutral counter and `asmp noise`",
        table(
            ["nothing, counts a second", "window, s", *(COUNTS[kind] for kind in kinds)],
            [
                ["neutral counter", f"{neutral['seconds']:.1f}", *theirs],
                ["`asmp noise`", f"{ours_s:.1f}", *ours],
            ],
        ),
    ]


def replace(path, text):
    page = path.read_text()
    pattern = r"(<!-- peers: begin [^\n]*-->\n).*?(<!-- peers: end -->)"
    page, done = re.subn(pattern, lambda m: f"{m[1]}{text}\n{m[2]}", page, flags=re.S)
    if done != 1:
        raise SystemExit(f"{path}: one pair of peers: markers expected, found {done}")
    path.write_text(page)


def main():
    raw = json.loads((TOP / "docs/measurements/peers.json").read_text())
    replace(TOP / "docs/measurements/peers.md", full(raw))
    replace(TOP / "README.md", short(raw))


main()
