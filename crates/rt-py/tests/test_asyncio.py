# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Coroutines that read FIFOs: woken, cancelled, closed, and without a busy loop."""

import asyncio
import gc
import select
import subprocess
import sys
import time
import weakref

import pytest
from conftest import PATIENCE_S, Start, cpu_s, threads_of

import asmp_rt


def test_a_loop_over_a_fifo_sees_every_record_of_another_process(start: Start) -> None:
    async def main() -> list[int]:
        with asmp_rt.Fifo.create("a", 4096) as fifo, fifo.reader() as reader:
            start(
                """
writer = asmp_rt.Fifo.attach("a").writer()
for number in range(5000):
    writer.write(b"%d" % number)
    if number % 500 == 0:
        time.sleep(0.02)
"""
            )
            return [int(record) async for record in reader]

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == list(range(5000))


def test_a_loop_reads_what_a_writer_that_wakes_nobody_writes(start: Start, sound_card: str) -> None:
    async def main() -> int:
        other = subprocess.Popen(
            [sound_card, "-n", "a", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert other.stderr and b"waiting" in other.stderr.readline()
            count = 0
            with asmp_rt.Fifo.attach("a").reader() as reader:
                async for _ in reader:
                    count += 1
            return count
        finally:
            other.kill()
            other.communicate()

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == 375


def test_other_tasks_run_while_one_waits_and_while_one_reads_without_end() -> None:
    async def main() -> None:
        with (
            asmp_rt.Fifo.create("a", 1 << 20) as fifo,
            fifo.reader() as reader,
            fifo.writer() as writer,
        ):
            waits = asyncio.create_task(reader.get())
            begin = time.monotonic()
            for _ in range(100):
                await asyncio.sleep(0)
                assert reader.try_read() is None and reader.corrupted == 0
            # Not even these wait for the thread of the descriptor.
            assert time.monotonic() - begin < 2
            writer.write(b"1")
            assert await waits == b"1"

            async def reads() -> None:
                async for record in reader:
                    writer.write(record)

            writer.write(b"2")
            endless = asyncio.create_task(reads())
            await asyncio.sleep(0.01)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            assert reader.try_read() == b"2"

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_cancelled_get_takes_nothing() -> None:
    async def main() -> None:
        with (
            asmp_rt.Fifo.create("a", 1 << 16) as fifo,
            fifo.reader() as reader,
            fifo.writer() as writer,
        ):
            read: list[int] = []
            for number in range(300):
                get = asyncio.create_task(reader.get())
                await asyncio.sleep(0)
                writer.write(b"%d" % number)
                # Anywhere between written, woken and read.
                await asyncio.sleep(number % 7 / 10_000)
                get.cancel()
                try:
                    read.append(int(await get))
                except asyncio.CancelledError:
                    pass
            while (record := reader.try_read()) is not None:
                read.append(int(record))
            assert read == list(range(300))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await reader.get()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_get_that_is_cancelled_after_it_was_woken_takes_nothing_either() -> None:
    async def main() -> None:
        wrong: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: wrong.append(context)
        )
        with (
            asmp_rt.Fifo.create("a", 1000) as fifo,
            fifo.reader() as reader,
            fifo.writer() as writer,
        ):
            get = asyncio.create_task(reader.get())
            await asyncio.sleep(0)
            writer.write(b"1")
            assert select.select([reader], [], [], PATIENCE_S)[0]
            # As the loop does: the coroutine is woken, and has not run yet.
            reader._waiter._wake(asyncio.get_running_loop())
            get.cancel()
            with pytest.raises(asyncio.CancelledError):
                await get
            assert reader.try_read() == b"1" and not wrong

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_many_that_wait_get_a_record_each() -> None:
    async def main() -> None:
        with (
            asmp_rt.Fifo.create("many", 1 << 16) as fifo,
            fifo.reader() as reader,
            fifo.writer() as writer,
        ):
            tasks = [asyncio.create_task(reader.get()) for _ in range(20)]
            await asyncio.sleep(0.1)
            assert threads_of("many") == 1
            for number in range(20):
                writer.write(b"%d" % number)
                await asyncio.sleep(0.001)
            assert {int(record) for record in await asyncio.gather(*tasks)} == set(range(20))

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_closing_ends_waits_at_once_and_loops_without_an_error() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 1000) as fifo:
            reader = fifo.reader()

            async def loop() -> int:
                return sum([1 async for _ in reader])

            get, loops = asyncio.create_task(reader.get()), asyncio.create_task(loop())
            await asyncio.sleep(0.01)
            reader.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert get.done() and loops.done(), "not only when the thread has noticed"
            with pytest.raises(asmp_rt.Closed, match="^the reader of fifo a is closed$"):
                await get
            assert await loops == 0
            with pytest.raises(asmp_rt.Closed):
                await reader.get()
            with pytest.raises(asmp_rt.Closed):
                async for _ in reader:
                    pass

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_killed_writer_ends_a_loop(start: Start) -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader:
            other = start(
                'writer = asmp_rt.Fifo.attach("a").writer()\nwriter.write(b"1")\ntime.sleep(1000)'
            )
            assert await reader.get() == b"1"
            get = asyncio.create_task(reader.get())
            await asyncio.sleep(0.05)
            other.kill()
            with pytest.raises(asmp_rt.PeerGone, match="^fifo a: the writer has ended$"):
                await get
            assert [record async for record in reader] == []

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_waiting_does_not_spin() -> None:
    async def main() -> float:
        with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer():
            begin = cpu_s()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.get(), 2)
            return cpu_s() - begin

    assert asyncio.run(main()) < 0.2


def test_nothing_is_left_of_a_reader_that_nobody_uses() -> None:
    async def main() -> "weakref.ref[asmp_rt.FifoReader]":
        fifo = asmp_rt.Fifo.create("left", 1000)
        reader, writer = fifo.reader(), fifo.writer()
        get = asyncio.create_task(reader.get())
        await asyncio.sleep(0.01)
        writer.write(b"1")
        await get
        return weakref.ref(reader)

    left = asyncio.run(main())
    gc.collect()
    assert left() is None and not threads_of("left")
    asmp_rt.Fifo.create("left", 1000).close()


def test_a_program_ends_whose_loop_left_a_task_waiting() -> None:
    code = """
import asmp_rt, asyncio
reader = asmp_rt.Fifo.create("b", 1000).reader()
loop = asyncio.new_event_loop()
task = loop.create_task(reader.get())
loop.call_later(0.05, loop.stop)
loop.run_forever()
print("ends")
"""
    command = [sys.executable, "-P", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "ends\n")
