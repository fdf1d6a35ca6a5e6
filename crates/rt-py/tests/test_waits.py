# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Descriptors for select and event loops, and waits that another thread ends."""

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable

import pytest
from conftest import PATIENCE_S, Start, told

import asmp_rt


def readable(end: asmp_rt.FifoReader | asmp_rt.FifoWriter, seconds: float) -> bool:
    return bool(select.select([end], [], [], seconds)[0])


def falls(
    end: asmp_rt.FifoReader | asmp_rt.FifoWriter, finds_nothing: Callable[[], object]
) -> None:
    """Waits until it is unreadable: the thread may have looked just before."""
    until = time.monotonic() + PATIENCE_S
    while readable(end, 0.02):
        assert time.monotonic() < until
        finds_nothing()


def test_a_descriptor_is_readable_until_the_end_finds_nothing() -> None:
    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        assert not readable(reader, 0.02) and readable(writer, PATIENCE_S)
        while writer.try_write(b"1"):
            assert readable(reader, PATIENCE_S)
        falls(writer, lambda: writer.try_write(b"1"))
        while reader.try_read() is not None:
            assert readable(reader, PATIENCE_S)
        falls(reader, reader.try_read)
        assert readable(writer, PATIENCE_S)
        number = os.dup(reader.fileno())
    with pytest.raises(asmp_rt.Closed):
        reader.fileno()
    assert select.select([number], [], [], 0)[0], "a poll of a closed end returns"
    os.close(number)


def test_the_end_of_a_killed_peer_is_readable(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader:
        assert not readable(reader, 0.3), "it has not come yet"
        other = start(
            'writer = asmp_rt.Fifo.attach("a").writer()\nprint("there")\ntime.sleep(1000)'
        )
        assert told(other) == "there"
        time.sleep(0.3)
        assert not readable(reader, 0)
        other.kill()
        assert readable(reader, PATIENCE_S) and reader.try_read() is None
        with pytest.raises(asmp_rt.PeerGone):
            reader.wait(0)


@pytest.mark.parametrize("slice_s", [0, 0.001, 0.05])
def test_many_short_waits_learn_that_the_peer_was_killed(start: Start, slice_s: float) -> None:
    def ends(wait: Callable[[], None]) -> None:
        """Each is shorter than it may take to find out; all together are longer."""
        until = time.monotonic() + PATIENCE_S
        with pytest.raises(asmp_rt.PeerGone):
            while time.monotonic() < until:
                with contextlib.suppress(asmp_rt.TimedOut):
                    wait()

    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader:
        other = start(
            'writer = asmp_rt.Fifo.attach("a").writer()\nwriter.write(b"1")\ntime.sleep(1000)'
        )
        assert reader.read(PATIENCE_S) == b"1"
        other.kill()
        other.wait()
        ends(lambda: reader.wait(slice_s))
    with asmp_rt.Fifo.create("b", 64) as fifo, fifo.writer() as writer:
        other = start(
            'reader = asmp_rt.Fifo.attach("b").reader()\nreader.read()\nprint("there")\n'
            "time.sleep(1000)"
        )
        writer.write(b"1", PATIENCE_S)
        assert told(other) == "there"
        while writer.try_write(b"1"):
            pass
        with contextlib.suppress(asmp_rt.TimedOut):
            writer.wait(8, slice_s)
        other.kill()
        other.wait()
        ends(lambda: writer.wait(8, slice_s))


@pytest.mark.parametrize("delay_s", [0, 0.05])
def test_another_thread_cancels_waits_until_resume(delay_s: float) -> None:
    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        while writer.try_write(b"1"):
            pass
        for _ in range(2):
            timer = threading.Timer(delay_s, writer.cancel)
            timer.start()
            with pytest.raises(asmp_rt.Cancelled, match="^fifo a: cancelled by another thread$"):
                writer.write(b"1")
            assert writer.cancelled and not reader.cancelled
            timer.join()
            writer.resume()
        while reader.try_read() is not None:
            pass
        reader.cancel()
        assert writer.try_write(b"1")
        for wait in (reader.wait, reader.read, lambda: next(iter(reader))):
            with pytest.raises(asmp_rt.Cancelled):
                wait()
        reader.resume()
        assert reader.read() == b"1"


def test_a_cancel_and_a_close_end_the_waits_of_several_threads_at_once() -> None:
    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.writer():
        ended: list[tuple[str, float]] = []

        def waits(reader: asmp_rt.FifoReader) -> None:
            try:
                reader.read()
            except asmp_rt.Error as error:
                ended.append((type(error).__name__, time.monotonic()))

        took_s = []
        for round_ in range(20):
            reader = fifo.reader()
            threads = [threading.Thread(target=waits, args=(reader,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.01)
            begin = time.monotonic()
            reader.cancel() if round_ % 2 else reader.close()
            for thread in threads:
                thread.join(PATIENCE_S)
            assert [name for name, _ in ended] == ["Cancelled" if round_ % 2 else "Closed"] * 3
            took_s.append(max(when for _, when in ended) - begin)
            ended.clear()
            reader.close()
        # Who looks by himself does so after up to 100 ms.
        assert sorted(took_s)[10] < 0.04


def test_a_cancel_ends_coroutines_and_loops_that_come_later() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
            while writer.try_write(b"1"):
                pass
            put = asyncio.create_task(writer.put(b"1"))
            await asyncio.sleep(0.02)
            writer.cancel()
            with pytest.raises(asmp_rt.Cancelled):
                await put
            with pytest.raises(asmp_rt.Cancelled):
                await writer.put(b"1")
            while reader.try_read() is not None:
                pass
            get = asyncio.create_task(reader.get())
            await asyncio.sleep(0.02)
            reader.cancel()
            with pytest.raises(asmp_rt.Cancelled):
                await get
            with pytest.raises(asmp_rt.Cancelled):
                async for _ in reader:
                    pass
            reader.resume()
            writer.resume()
            await writer.put(b"2")
            assert await reader.get() == b"2"

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_coroutines_of_two_loops_wait_for_one_end() -> None:
    with asmp_rt.Fifo.create("a", 4096) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        found: list[bytes] = []

        def loop() -> None:
            found.append(asyncio.run(asyncio.wait_for(reader.get(), PATIENCE_S)))

        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        writer.write(b"1")
        writer.write(b"2")
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(found) == [b"1", b"2"]


def test_control_c_ends_a_wait_of_a_process_that_has_a_descriptor(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 64) as fifo, fifo.writer():
        other = start(
            """
reader = asmp_rt.Fifo.attach("a").reader()
reader.fileno()
print("waits")
try:
    reader.read()
except KeyboardInterrupt:
    print("interrupted")
"""
        )
        assert told(other) == "waits"
        time.sleep(0.1)
        other.send_signal(signal.SIGINT)
        assert told(other) == "interrupted"
        assert other.wait(PATIENCE_S) == 0
