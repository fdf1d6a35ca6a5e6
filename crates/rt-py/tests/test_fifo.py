# SPDX-License-Identifier: Apache-2.0 OR MIT
"""FIFOs: between threads, between processes, and when the other side ends."""

import signal
import struct
import subprocess
import sys
import threading
import time
from typing import Literal

import pytest
from conftest import PATIENCE_S, Start, cpu_s, told

import asmp_rt

WRITES_FOR_EVER = """
writer = asmp_rt.Fifo.attach("a").writer()
print("writes")
for number in itertools.count():
    writer.write(struct.pack("=Q", number) * 8)
"""


def test_records_come_out_as_they_went_in() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        assert fifo.capacity_bytes == 1016 and fifo.empty and reader.try_read() is None
        for record in (b"1", b"23456789", bytes(range(100))):
            writer.write(record)
        assert not fifo.empty
        assert [reader.read(), reader.read(0), reader.try_read()] == [
            b"1",
            b"23456789",
            bytes(range(100)),
        ]
        assert (
            reader.try_read() is None
            and reader.corrupted == writer.corrupted == writer.dropped == 0
        )


def test_whatever_has_bytes_is_a_record() -> None:
    numpy = pytest.importorskip("numpy")
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        numbers = numpy.arange(4, dtype=numpy.float32)
        for record in (b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), numbers):
            assert writer.try_write(record)
        assert [reader.read() for _ in range(4)] == [b"bytes"] * 3 + [numbers.tobytes()]
        assert writer.try_write(numbers)
        into = numpy.zeros(6, dtype=numpy.float32)
        assert reader.readinto(into) == 16 and into.tolist() == [0, 1, 2, 3, 0, 0]


def test_what_does_not_fit_into_a_buffer_comes_next() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        writer.write(b"0123456789")
        buffer = bytearray(4)
        assert reader.readinto(buffer) == 4 and buffer == b"0123"
        assert reader.try_readinto(buffer) == 4 and buffer == b"4567"
        assert reader.readinto(buffer) == 2 and buffer == b"8967"
        assert reader.try_readinto(buffer) is None and buffer == b"8967"


def test_a_full_fifo_refuses_or_drops_the_oldest_and_counts_them() -> None:
    with asmp_rt.Fifo.create("a", 56) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        taken = [writer.try_write(bytes([number])) for number in range(6)]
        assert taken == [True, True, True, False, False, False] and writer.dropped == 0
        with pytest.raises(asmp_rt.TimedOut, match="^fifo a: timed out$"):
            writer.write(b"x", 0.01)
        assert [reader.try_read() for _ in range(4)] == [b"\0", b"\1", b"\2", None]
    with asmp_rt.Fifo.create("a", 56, overflow="drop-oldest") as fifo:
        with fifo.reader() as reader, fifo.writer() as writer:
            assert (
                all(writer.try_write(bytes([number])) for number in range(6))
                and writer.dropped == 3
            )
            assert [reader.try_read() for _ in range(4)] == [b"\3", b"\4", b"\5", None]


def test_a_timeout_is_kept_without_a_writer_and_with_one() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader:
        for seconds in (0, 0.01, 0.25):
            begin = time.monotonic()
            with pytest.raises(asmp_rt.TimedOut):
                reader.read(seconds)
            assert time.monotonic() - begin >= seconds
        with fifo.writer(), pytest.raises(TimeoutError):
            reader.readinto(bytearray(1), 0.15)
        with fifo.writer():
            begin = time.monotonic()
            for _ in range(40):
                with pytest.raises(asmp_rt.TimedOut):
                    reader.read(0.001)
            # Not in steps of 100 ms.
            assert time.monotonic() - begin < 2


def test_who_waits_lets_other_threads_run_and_is_woken() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        read: list[bytes] = []
        thread = threading.Thread(target=lambda: read.append(reader.read(PATIENCE_S)))
        thread.start()
        # Only a thread that has let the interpreter go lets this one count.
        for _ in range(100_000):
            pass
        assert thread.is_alive() and not read
        writer.write(b"1")
        thread.join()
        assert read == [b"1"]


def test_waiting_costs_next_to_nothing() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer():
        begin = cpu_s()
        with pytest.raises(asmp_rt.TimedOut):
            reader.read(2)
        assert cpu_s() - begin < 0.2


def test_two_processes_carry_every_record_in_order(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 4096) as fifo, fifo.reader() as reader:
        start(
            """
writer = asmp_rt.Fifo.attach("a").writer()
for number in range(20_000):
    writer.write(struct.pack("=Q", number) * 8)
"""
        )
        expected = (struct.pack("=Q", number) * 8 for number in range(20_000))
        # The loop ends with the writer.
        assert all(record == wanted for record, wanted in zip(reader, expected, strict=True))
        assert reader.corrupted == 0 and not reader.has_writer


def test_a_reader_in_another_process_makes_room(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 100) as fifo, fifo.writer() as writer:
        other = start(
            """
with asmp_rt.Fifo.attach("a").reader() as reader:
    print(sum(int(record) for record in reader))
"""
        )
        for number in range(5000):
            writer.write(str(number).encode(), PATIENCE_S)
        writer.close()
        assert told(other) == str(sum(range(5000)))


OVERFLOW: list[Literal["refuse", "drop-oldest"]] = ["refuse", "drop-oldest"]


@pytest.mark.parametrize("overflow", OVERFLOW)
def test_a_killed_writer_is_gone_after_its_last_record_and_another_goes_on(
    start: Start, overflow: Literal["refuse", "drop-oldest"]
) -> None:
    with asmp_rt.Fifo.create("a", 4096, overflow=overflow) as fifo, fifo.reader() as reader:
        for round in range(3):
            other = start(WRITES_FOR_EVER)
            assert told(other) == "writes"
            last = -1
            for _ in range(500 + 37 * round):
                record = reader.read(PATIENCE_S)
                (number,) = set(struct.unpack("=8Q", record))
                assert number > last
                last = number
            other.kill()
            other.wait()
            begin = time.monotonic()
            rest = list(reader)
            assert time.monotonic() - begin < 5, "an end, and not for ever"
            numbers = [struct.unpack("=8Q", record)[0] for record in rest]
            first = last + 1 if overflow == "refuse" else min(numbers, default=last + 1)
            assert first > last
            assert numbers == list(range(first, first + len(numbers))), "what it had written, whole"
            with pytest.raises(asmp_rt.PeerGone, match="^fifo a: the writer has ended$"):
                reader.read()
        assert reader.corrupted == 0


def test_a_killed_reader_is_gone_for_a_writer_that_finds_no_room(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 100) as fifo, fifo.writer() as writer:
        other = start(
            'reader = asmp_rt.Fifo.attach("a").reader()\nprint(reader.read())\ntime.sleep(1000)'
        )
        writer.write(b"1")
        assert told(other) == "b'1'"
        assert writer.has_reader
        while writer.try_write(b"2"):
            pass
        with pytest.raises(asmp_rt.TimedOut):
            writer.write(b"3", 0.15)
        other.kill()
        other.wait()
        with pytest.raises(asmp_rt.PeerGone, match="^fifo a: the reader has ended$"):
            writer.write(b"3")
        with fifo.reader() as reader:
            assert reader.try_read() == b"2"
        writer.write(b"3")


def test_a_writer_that_comes_later_is_waited_for(start: Start) -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader:
        start('time.sleep(0.5)\nasmp_rt.Fifo.attach("a").writer().write(b"late")')
        assert list(reader) == [b"late"]


def test_another_thread_ends_a_wait_by_closing() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo:
        reader = fifo.reader()
        ends: list[object] = []

        def waits() -> None:
            try:
                reader.read()
            except asmp_rt.Closed as error:
                ends.append(str(error))

        threads = [
            threading.Thread(target=waits),
            threading.Thread(target=lambda: ends.append(list(reader))),
        ]
        for thread in threads:
            thread.start()
        reader.close()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(map(str, ends)) == ["[]", "the reader of fifo a is closed"]
        # And the role is free.
        fifo.reader().close()


def test_control_c_ends_a_wait() -> None:
    # A program that was started in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader:
            threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                reader.read(PATIENCE_S)
    finally:
        signal.signal(signal.SIGINT, before)


def test_memory_that_somebody_scribbled_on_is_an_error_once_and_then_forgotten(
    start: Start,
) -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        writer.write(b"1")
        other = start(
            """
import glob
link = glob.glob(os.path.join(os.environ["ASMP_CHANNELS"], "a.*"))[0]
# Header 64, control words 256, then the frame.
os.pwrite(os.open(link, os.O_RDWR), b"\\xff" * 8, 64 + 256)
"""
        )
        assert other.wait() == 0
        with pytest.raises(asmp_rt.Corrupt, match="its contents are lost"):
            reader.read()
        assert reader.corrupted == 1
        writer.write(b"2")
        assert reader.read() == b"2"


def test_a_program_ends_while_a_thread_of_it_waits() -> None:
    code = """
import asmp_rt, threading
fifo = asmp_rt.Fifo.create("b", 1000)
reader = fifo.reader()
threading.Thread(target=reader.read, daemon=True).start()
reader.try_read()
"""
    command = [sys.executable, "-P", "-c", code]
    for _ in range(3):
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
