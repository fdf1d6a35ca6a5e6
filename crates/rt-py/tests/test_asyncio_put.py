# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Coroutines that write FIFOs: they wait for room, in order, and a put that is cancelled has put
nothing in."""

import asyncio

import pytest
from conftest import PATIENCE_S, Start, cpu_s

import asmp_rt

# Of a FIFO that was made for 64 bytes, whose capacity is 120: nothing fits beside it.
FULL = bytes(100)
# Room for a byte is left.
MOST = bytes(90)


def test_puts_wait_for_room_until_a_reader_of_another_process_has_made_it(start: Start) -> None:
    async def main() -> str:
        with asmp_rt.Fifo.create("a", 256) as fifo, fifo.writer() as writer:
            other = start(
                """
reader = asmp_rt.Fifo.attach("a").reader()
for number in range(2000):
    assert reader.read() == b"%d" % number
    if number % 500 == 0:
        time.sleep(0.02)
print("all")
"""
            )
            for number in range(2000):
                await writer.put(b"%d" % number)
            assert other.stdout
            return await asyncio.to_thread(other.stdout.readline)

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == "all\n"


async def turns() -> None:
    """What can be done without the thread that waits, which may take 100 ms, is done after so
    many."""
    for _ in range(8):
        await asyncio.sleep(0)


def test_those_who_wait_are_served_in_order_though_a_smaller_record_would_fit() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
            assert writer.try_write(MOST)
            puts = [asyncio.create_task(writer.put(record)) for record in (FULL, b"1", b"2", b"3")]
            await turns()
            # The end of one wait wakes the others.
            puts.pop().cancel()
            await turns()
            assert not any(put.done() for put in puts)
            found: list[bytes] = []
            while len(found) < 4:
                if (record := reader.try_read()) is not None:
                    found.append(record)
                await asyncio.sleep(0.001)
            assert found == [MOST, FULL, b"1", b"2"]

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_cancelled_put_puts_nothing_in_and_holds_nobody_up() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
            assert writer.try_write(MOST)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await writer.put(FULL)
            first, second = (asyncio.create_task(writer.put(record)) for record in (FULL, b"2"))
            await turns()
            first.cancel()
            await turns()
            assert second.done()
            assert [reader.try_read() for _ in range(3)] == [MOST, b"2", None]

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_buffer_may_change_while_its_put_waits() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader() as reader, fifo.writer() as writer:
            assert writer.try_write(FULL)
            buffer = bytearray(b"then" * 25)
            put = asyncio.create_task(writer.put(buffer))
            await asyncio.sleep(0.01)
            buffer[:] = b"now!" * 25
            assert reader.try_read() == FULL
            await put
            assert reader.try_read() == b"then" * 25

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_put_of_what_is_no_record_is_refused_also_behind_others() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.reader(), fifo.writer() as writer:
            for _ in range(2):
                for wrong in ("text", 5, None):
                    with pytest.raises(TypeError):
                        await writer.put(wrong)  # type: ignore[arg-type]
                waits = asyncio.create_task(writer.put(FULL))
                await asyncio.sleep(0.01)
            with pytest.raises(asmp_rt.BadRecord):
                await asyncio.wait_for(
                    asyncio.gather(writer.put(bytes(1000)), return_exceptions=False), 1
                )
            assert not waits.done()
            waits.cancel()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_reader_that_is_killed_ends_a_put_for_which_there_is_no_room(start: Start) -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo, fifo.writer() as writer:
            other = start(
                'reader = asmp_rt.Fifo.attach("a").reader()\nreader.read()\ntime.sleep(1000)'
            )
            await writer.put(FULL)
            await writer.put(FULL)
            put = asyncio.create_task(writer.put(FULL))
            await asyncio.sleep(0.01)
            other.kill()
            with pytest.raises(asmp_rt.PeerGone, match="^fifo a: the reader has ended$"):
                await put

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_closing_ends_puts_at_once() -> None:
    async def main() -> None:
        with asmp_rt.Fifo.create("a", 64) as fifo:
            writer = fifo.writer()
            assert writer.try_write(FULL)
            put = asyncio.create_task(writer.put(FULL))
            await asyncio.sleep(0.01)
            writer.close()
            await turns()
            assert put.done(), "not only when the thread has noticed"
            with pytest.raises(asmp_rt.Closed, match="^the writer of fifo a is closed$"):
                await put
            with pytest.raises(asmp_rt.Closed):
                await writer.put(b"1")

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_other_tasks_run_while_one_puts_without_end_and_waiting_does_not_spin() -> None:
    async def main() -> float:
        with (
            asmp_rt.Fifo.create("a", 1000, overflow="drop-oldest") as fifo,
            fifo.writer() as writer,
        ):

            async def puts() -> None:
                while True:
                    await writer.put(b"1")

            endless = asyncio.create_task(puts())
            for _ in range(10):
                await asyncio.sleep(0)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
        with asmp_rt.Fifo.create("b", 64) as fifo, fifo.reader(), fifo.writer() as writer:
            assert writer.try_write(FULL)
            begin = cpu_s()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.put(FULL), 2)
            return cpu_s() - begin

    assert asyncio.run(main()) < 0.2
