# SPDX-License-Identifier: Apache-2.0 OR MIT
"""An independent model of what `histogram.rs` counts; nothing of the crate, standard library only.

    model.py cases DIR MOST    plant samples, and say what is true of them: DIR/cases.jsonl
    model.py read LOG...       read logs of HdrHistogram (V2, compressed) and print their counts

The model keeps every instant of a period as a number: an instant's latency is the time until the
task next runs. It knows no formula for stalls; it walks through them.
"""

import array
import base64
import json
import math
import pathlib
import random
import struct
import sys
import zlib

ONE_IN = [2, 10, 100, 1000, 10_000, 100_000, 1_000_000]
US, MS = 1000, 1_000_000


def truth(sampled, missed, limit_ns):
    """Exact figures of lists of latencies."""
    every = sorted(sampled + missed)
    n, total = len(every), sum(every)
    squares = sum(ns * ns for ns in every)
    quantiles = {}
    for one_in in ONE_IN:
        # The smallest value with at most one in so many above it.
        quantiles[one_in] = None if n < one_in else every[n - n // one_in - 1]
    return {
        "n": n,
        "missed": len(missed),
        "min_ns": every[0],
        "max_ns": every[-1],
        "average_ns": total / n,
        "deviation_ns": math.sqrt((squares * n - total * total) / n / (n - 1)) if n > 1 else 0.0,
        "quantiles": quantiles,
        "limit_ns": limit_ns,
        "above": sum(1 for ns in every if ns > limit_ns),
        "limit_alike": sum(1 for ns in every if abs(ns - limit_ns) * 1024 <= limit_ns),
    }


def walk(latencies, period_ns):
    """Samples of a probe that sleeps from instant to instant, and the instants that it missed."""
    samples, missed, due_ns = [], [], 0
    for latency_ns in latencies:
        samples.append((due_ns, latency_ns))
        woken_ns = due_ns + latency_ns
        due_ns += period_ns
        while due_ns < woken_ns:
            missed.append(woken_ns - due_ns)
            due_ns += period_ns
    return samples, missed


def distributions(rng):
    level = 20_000.0

    def drifting():
        nonlocal level
        level = 20_000 + 0.95 * (level - 20_000) + rng.gauss(0, 500)
        return max(0, int(level))

    turn = 0

    def stalling():
        nonlocal turn
        turn += 1
        return 40 * MS if turn % 500 == 0 else 9 * US + rng.randrange(4 * US)

    return {
        "constant": lambda: 12_345,
        "uniform": lambda: rng.randrange(100 * US),
        "normal": lambda: max(0, int(rng.gauss(30_000, 8_000))),
        "exponential": lambda: int(rng.expovariate(1 / 50_000)),
        "lognormal": lambda: int(rng.lognormvariate(10, 1.5)),
        "pareto": lambda: min(int(5_000 * rng.paretovariate(1.1)), 3_000 * MS),
        "two levels": lambda: 10_000 if rng.random() < 0.8 else 100_000,
        "mostly zero": lambda: 0 if rng.random() < 0.9 else rng.randrange(1, 2048),
        "drifting": drifting,
        "stalling": stalling,
    }


def planted(rng, most):
    """Ten distributions, from one sample on, with a period and with instants at random."""
    sizes = [n for n in (1, 2, 9, 10, 99, 100, 999, 1000, 10_000, 100_000, 1_000_000) if n <= most]
    for name, draw in distributions(rng).items():
        for size in sizes:
            latencies = [draw() for _ in range(size)]
            samples, missed = walk(latencies, MS)
            yield f"{name}, {size}", MS, samples, truth(latencies, missed, 100 * US)
        at_random, due_ns = [], 0
        for latency_ns in latencies[:1000]:
            due_ns += latency_ns + rng.randrange(2 * MS, 30 * MS)
            at_random.append((due_ns, latency_ns))
        yield f"{name}, no period", None, at_random, truth(latencies[:1000], [], 100 * US)


def stalls():
    """The CPU is away from `start` for `stall` ns, of every length over every period: a clock of
    single nanoseconds says when each instant's task runs."""
    for period in range(1, 13):
        for stall in range(10 * period + 1):
            for start in {0, 1, period // 2, period - 1}:
                start += 3 * period
                horizon = range(20 * period)
                away = [start <= now < start + stall for now in horizon] + [False]
                latency = {}
                for due in horizon[::period]:
                    runs = next(now for now in range(due, len(away)) if not away[now])
                    latency[due] = runs - due
                samples, ran = [], -1
                for due, late in latency.items():
                    # An instant that passed before the probe was back has no sample.
                    if due >= ran:
                        samples.append((due, late))
                        ran = due + late
                sampled = [late for _, late in samples]
                taken = {due for due, _ in samples}
                missed = [late for due, late in latency.items() if due not in taken]
                yield (
                    f"stall of {stall} at {start}, period {period}",
                    period,
                    samples,
                    truth(sampled, missed, 2 * period),
                )


def cases(directory, most):
    rng = random.Random(14)
    with open(directory / "cases.jsonl", "w") as out:
        for number, (name, period_ns, samples, expected) in enumerate(
            [*stalls(), *planted(rng, most)]
        ):
            words = array.array("Q", [word for sample in samples for word in sample])
            if sys.byteorder == "big":
                words.byteswap()
            file = f"{number}.bin"
            (directory / file).write_bytes(words.tobytes())
            json.dump({"name": name, "period_ns": period_ns, "file": file, **expected}, out)
            out.write("\n")


def varint(data, at):
    """LEB128-64b9B: seven bits a byte; the ninth byte has eight."""
    value = 0
    for turn in range(9):
        byte = data[at]
        at += 1
        if turn == 8:
            return value | byte << 56, at
        value |= (byte & 127) << 7 * turn
        if byte < 128:
            return value, at
    raise AssertionError


def decode(text):
    """{lowest value of a bucket: count} of one V2 histogram, by the format's description."""
    outer = base64.b64decode(text)
    cookie, length = struct.unpack(">II", outer[:8])
    assert cookie == 0x1C849304 | 0x10, hex(cookie)
    plain = zlib.decompress(outer[8 : 8 + length])
    cookie, length, offset, digits, low, _, ratio = struct.unpack(">IIIIQQd", plain[:40])
    assert (cookie, offset, low, ratio) == (0x1C849303 | 0x10, 0, 1, 1.0)
    half = 2 ** math.ceil(math.log2(2 * 10**digits)) // 2
    counts, index, at = {}, 0, 40
    while at < 40 + length:
        word, at = varint(plain, at)
        count = word >> 1 ^ -(word & 1)
        if count < 0:
            index -= count
            continue
        if count:
            bucket, sub = index // half - 1, index % half + half
            if bucket < 0:
                bucket, sub = 0, index
            counts[sub << bucket] = count
        index += 1
    return counts


def read(path):
    """{tag: {lowest value: count}} of a log, all its seconds together; and the seconds."""
    tags, seconds = {}, []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(("#", '"')):
            continue
        tag = ""
        if line.startswith("Tag="):
            tag, line = line[4:].split(",", 1)
        start, length, _, text = line.split(",")
        assert float(length) == 1.0
        counts = decode(text)
        seconds.append([tag, float(start), sum(counts.values())])
        total = tags.setdefault(tag, {})
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    return {"tags": tags, "seconds": seconds}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cases", directory, most]:
            cases(pathlib.Path(directory), int(most))
        case ["read", *paths]:
            for path in paths:
                print(json.dumps(read(path)))
        case _:
            sys.exit(__doc__)
