# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What asmp wrote, read by programs of others: HdrHistogram, prometheus_client, promtool."""

import json
import os
import random
import re
import statistics
import subprocess
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from prometheus_client.parser import text_string_to_metric_families

# Three significant digits.
WITHIN = 1 / 1000
PERCENTILES = [0, 1, 25, 50, 90, 99, 99.9, 99.99, 100]


def asmp(*words, code=0):
    done = subprocess.run([os.environ["ASMP"], *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done
    return done.stdout


def exported(run, to):
    return asmp("measure", "export", run, "--to", to)


def truth(values, percentile):
    """The smallest value that so many of a hundred do not pass."""
    at = max(1, -(-len(values) * round(percentile * 1000) // 100_000))
    return values[at - 1]


def drawn(shape, seed):
    chance = random.Random(seed)
    draw = {
        "one value": lambda: 17,
        "narrow": lambda: chance.randint(20, 40),
        "two hills": lambda: chance.choice([10, 900]) + chance.randint(0, 9),
        "long tail": lambda: min(9_999_999, int(chance.paretovariate(0.7) * 10)),
    }[shape]
    return sorted(draw() for _ in range(20_000))


SHAPES = ["one value", "narrow", "two hills", "long tail"]


def imported(directory, shape):
    """A run of the output that cyclictest would have printed, and its latencies in us."""
    values = drawn(shape, SHAPES.index(shape))
    directory.mkdir(exist_ok=True)
    file = directory / "hist.txt"
    counts = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    lines = [f"{value:06} {count:06}\n" for value, count in counts.items()]
    ends = {"Total": len(values), "Min Latencies": values[0], "Max Latencies": values[-1]}
    ends |= {"Avg Latencies": sum(values) // len(values), "Histogram Overflows": 0}
    file.write_text("".join(lines) + "".join(f"# {name}: {n:05}\n" for name, n in ends.items()))
    runs = directory / shape.replace(" ", "-")
    words = ["--from", "cyclictest", "-o", runs, "--kernel", "7.2.13", "--kind", "partition"]
    asmp("measure", "import", file, *words)
    (run,) = runs.iterdir()
    return run, values


def measured(directory):
    """A short run of this machine's own latencies, the task being where it happens to be."""
    runs = directory / "measured"
    words = ["--kinds", "normal", "--load", "idle", "--samples", 1500, "-o", runs]
    asmp("measure", "latency", *words)
    (run,) = runs.iterdir()
    return run


def log_of(run):
    """All latencies of a run's log in ns; what has a tag is a part of the others."""
    whole = HdrHistogram(1, 3_600 * 10**9, 3)
    reader = HistogramLogReader(str(run / "hist.hlog"), whole)
    slices = 0
    while (piece := reader.get_next_interval_histogram()) is not None:
        if piece.get_tag() is None:
            slices += 1
            whole.add(piece)
    return whole, slices


@pytest.mark.parametrize("shape", SHAPES)
def test_hdrhistogram_reads_the_latencies_that_were_imported(tmp_path, shape):
    run, values = imported(tmp_path, shape)
    log, _ = log_of(run)
    assert log.get_total_count() == len(values)
    for percentile in PERCENTILES:
        expected = 1000 * truth(values, percentile)
        assert log.get_value_at_percentile(percentile) == pytest.approx(expected, rel=WITHIN)


def percentile_text(text):
    """Lines of HdrHistogram's percentile text (us, percentile, total count), and its last lines."""
    heading, _, *rest = text.splitlines()
    assert heading.split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    ends = re.findall(r"([A-Z][A-Za-z ]*?) *= *([0-9.]+)", "\n".join(rest))
    lines = [line.split() for line in rest if not line.startswith("#")]
    lines = [(float(us), float(part), int(count)) for us, part, count, *_ in lines]
    assert lines == sorted(lines) and len({us for us, *_ in lines}) == len(lines)
    return lines, {name: float(number) for name, number in ends}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_percentile_text_has_every_figure_of_what_was_imported(tmp_path, shape):
    run, values = imported(tmp_path, shape)
    text = exported(run, "hdr")
    lines, ends = percentile_text(text)
    assert (lines[0][0], lines[-1]) == (values[0], (values[-1], 1, len(values)))
    for percentile in PERCENTILES:
        rank = max(1, -(-len(values) * round(percentile * 1000) // 100_000))
        found = next(us for us, _, count in lines if count >= rank)
        assert found == pytest.approx(truth(values, percentile), rel=WITHIN)
    assert all(part == pytest.approx(count / len(values)) for _, part, count in lines)
    assert (ends["Max"], ends["Total count"]) == (values[-1], len(values))
    assert ends["Mean"] == pytest.approx(statistics.fmean(values), abs=0.001)
    assert ends["StdDeviation"] == pytest.approx(statistics.pstdev(values), abs=0.001, rel=1e-9)
    # What is imported of it is the same to the nanosecond.
    file, runs = tmp_path / "hdr.txt", tmp_path / "again"
    file.write_text(text)
    words = ["--from", "hdr", "-o", runs, "--kernel", "7.2.13", "--kind", "partition"]
    asmp("measure", "import", file, *words)
    (again,) = runs.iterdir()
    assert exported(again, "hdr") == text


def test_the_percentile_text_of_a_measurement_has_its_nanoseconds(tmp_path):
    run = measured(tmp_path)
    (document,) = json.loads(exported(run, "json"))["runs"]
    summary = document["summary"]
    lines, ends = percentile_text(exported(run, "hdr"))
    assert [round(1000 * us) for us in (lines[0][0], lines[-1][0], ends["Max"])] == [
        summary["min_ns"],
        summary["max_ns"],
        summary["max_ns"],
    ]
    assert ends["Mean"] == pytest.approx(summary["average_ns"] / 1e3, abs=0.001)
    assert ends["Total count"] == lines[-1][2] == summary["instants"]


def test_hdrhistogram_reads_a_measurement_second_by_second(tmp_path):
    run = measured(tmp_path)
    log, slices = log_of(run)
    (document,) = json.loads(exported(run, "json"))["runs"]
    summary = document["summary"]
    assert log.get_total_count() == summary["instants"]
    assert log.get_max_value() == pytest.approx(summary["max_ns"], rel=WITHIN)
    # 1500 instants of 1 ms, a slice each second; a busy machine takes longer.
    assert slices >= 2
    assert sum(bucket["instants"] for bucket in document["buckets"]) == summary["instants"]


def several(directory):
    for shape in SHAPES:
        imported(directory, shape)
    measured(directory)
    runs = directory / "all"
    runs.mkdir()
    for at, run in enumerate(sorted(Path(directory).glob("*/*/run.json"))):
        run.parent.rename(runs / f"run-{at}")
    return runs


def test_prometheus_reads_one_series_a_run_with_its_figures(tmp_path):
    runs = several(tmp_path)
    families = {f.name: f for f in text_string_to_metric_families(exported(runs, "prometheus"))}
    documents = {d["run"]: d["summary"] for d in json.loads(exported(runs, "json"))["runs"]}
    assert len(documents) == len(SHAPES) + 1
    latency = families["asmp_latency_seconds"]
    assert latency.type == "summary"
    counts = [s for s in latency.samples if s.name == "asmp_latency_seconds_count"]
    assert {s.labels["run"]: s.value for s in counts} == {
        run: summary["instants"] for run, summary in documents.items()
    }
    longest = families["asmp_latency_max_seconds"].samples
    assert {s.labels["run"]: s.value for s in longest} == pytest.approx(
        {run: summary["max_ns"] / 1e9 for run, summary in documents.items()}
    )
    # What other tools missed is not known.
    missed = families["asmp_latency_missed"].samples
    known = {run for run, summary in documents.items() if summary["missed"] is not None}
    assert {s.labels["run"] for s in missed} == known and len(known) == 1
    keys = [(s.name, *sorted(s.labels.items())) for f in families.values() for s in f.samples]
    assert len(keys) == len(set(keys)), "a series twice"


def test_promtool_finds_nothing_to_complain_about(tmp_path):
    if not os.environ["PROMTOOL"]:
        reason = "promtool cannot be had from this machine's sources"
        assert not os.environ.get("ASMP_CI"), reason
        pytest.skip(reason)
    words = [os.environ["PROMTOOL"], "check", "metrics"]
    text = exported(several(tmp_path), "prometheus")
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # It does complain of a metric without help.
    done = subprocess.run(words, input="a_total 1\n", capture_output=True, text=True)
    assert done.returncode != 0
