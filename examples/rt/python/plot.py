# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Plots what crates/rt/examples/sound_card.rs streams, while it streams, and counts what was lost.

    python plot.py [--fifo NAME] [--svg FILE] [--live PORT]

The picture (SVG, written by this script alone) has the last 40 ms of sound, and how late each block
arrived here. With --live it is also on http://localhost:PORT/ and renewed twice a second. Ends when
the writer ends; exit code 1: samples were lost.
"""

import argparse
import array
import asyncio
import struct
import sys
import time
from collections import deque
from pathlib import Path

import asmp_rt

RATE_HZ = 48_000
HEADER = struct.Struct("=QQQ")
SHOWN_SAMPLES = RATE_HZ * 40 // 1000
SHOWN_BLOCKS = 375
WIDTH, HEIGHT = 800, 200
PAGE = """<!doctype html><title>sound</title><img id="plot" src="plot.svg"><script>
setInterval(() => { document.getElementById("plot").src = "plot.svg?" + Date.now() },
            500)</script>"""


class Sound:
    """What has come so far."""

    def __init__(self) -> None:
        self.blocks = 0
        self.samples = 0
        self.lost = 0
        self._next = 0
        self._last: deque[int] = deque(maxlen=SHOWN_SAMPLES)
        self._late_us: deque[float] = deque(maxlen=SHOWN_BLOCKS)

    def add(self, block: bytes, now_ns: int) -> None:
        _number, due_ns, first = HEADER.unpack_from(block)
        samples = array.array("h", block[HEADER.size :])
        self.lost += first - self._next
        self._next = first + len(samples)
        self.blocks += 1
        self.samples += len(samples)
        self._last.extend(samples)
        self._late_us.append((now_ns - due_ns) / 1000)

    def svg(self) -> str:
        late = sorted(self._late_us) or [0.0]
        median = late[len(late) // 2]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
                f' height="{2 * HEIGHT + 60}"'
                ' font-family="sans-serif" font-size="13">',
                '<rect width="100%" height="100%" fill="white"/>',
                f'<text x="5" y="18">sound, last {SHOWN_SAMPLES * 1000 // RATE_HZ} ms: '
                f"{self.samples} samples so far, {self.lost} lost</text>",
                line(self._last, -32768, 32767, 25, "steelblue"),
                f'<text x="5" y="{HEIGHT + 48}">from due to read here, '
                f"last {len(self._late_us)} blocks: median {median:.0f} us, "
                f"highest {late[-1]:.0f} us</text>",
                line(self._late_us, 0, max(late[-1], 1), HEIGHT + 55, "firebrick"),
                "</svg>\n",
            ]
        )


def line(values: deque[int] | deque[float], low: float, high: float, top: int, colour: str) -> str:
    across = WIDTH / max(len(values) - 1, 1)
    points = (
        f"{at * across:.1f},{top + HEIGHT - (value - low) / (high - low) * HEIGHT:.1f}"
        for at, value in enumerate(values)
    )
    return f'<polyline fill="none" stroke="{colour}" points="{" ".join(points)}"/>'


async def serve(sound: Sound, port: int) -> asyncio.Server:
    """A page on this machine that shows the picture."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            is_svg = request.startswith(b"GET /plot.svg")
            kind, text = ("image/svg+xml", sound.svg()) if is_svg else ("text/html", PAGE)
            body = text.encode()
            head = f"HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, "localhost", port)


async def read(name: str, sound: Sound) -> None:
    with asmp_rt.Fifo.attach(name).reader() as reader:
        async for block in reader:
            sound.add(block, time.monotonic_ns())


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fifo", default="sound")
    parser.add_argument("--svg", type=Path, default=Path("sound.svg"))
    parser.add_argument("--live", type=int, metavar="PORT")
    arguments = parser.parse_args()
    sound = Sound()
    server = await serve(sound, arguments.live) if arguments.live else None
    try:
        await read(arguments.fifo, sound)
    except asmp_rt.Error as error:
        print(f"plot: {error}", file=sys.stderr)
        return 2
    finally:
        if server:
            server.close()
    arguments.svg.write_text(sound.svg())
    print(f"{sound.blocks} blocks, {sound.samples} samples, {sound.lost} lost: {arguments.svg}")
    return 1 if sound.lost or not sound.samples else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
