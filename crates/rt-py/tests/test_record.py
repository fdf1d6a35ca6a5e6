# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records: the newest one, whole, whatever the writer does meanwhile."""

import os
import time

import pytest
from conftest import PATIENCE_S, Start, told

import asmp_rt

# Larger than what one instruction or cache line copies, so that a torn one would show.
SIZE = 8192


def test_the_newest_record_and_its_number_are_read_as_often_as_one_likes() -> None:
    with asmp_rt.Record.alloc("a", 5) as record:
        assert record.read() is None and not record.has_writer and record.size_bytes == 5
        with record.writer() as writer:
            assert record.has_writer
            for number in range(1, 10):
                writer.write(bytearray([number] * 5))
                assert record.read() == record.read() == (number, bytes([number] * 5))
            buffer = bytearray(7)
            assert record.readinto(buffer) == 9 and buffer == b"\t\t\t\t\t\0\0"
        assert not record.has_writer and record.read() == (9, b"\t" * 5)


def test_a_record_is_never_torn_while_another_process_writes_as_fast_as_it_can(
    start: Start,
) -> None:
    with asmp_rt.Record.alloc("a", SIZE) as record:
        other = start(
            f"""
writer = asmp_rt.Record.attach("a").writer()
print("writes")
records = [bytes([value]) * {SIZE} for value in range(251)]
for record in itertools.cycle(records):
    writer.write(record)
"""
        )
        assert told(other) == "writes"
        last, seen, overtaken, end = 0, 0, 0, time.monotonic() + PATIENCE_S
        while seen < 2000 and time.monotonic() < end:
            try:
                read = record.read()
            except asmp_rt.Overtaken:
                overtaken += 1
                continue
            if read is None or read[0] == last:
                os.sched_yield()
                continue
            number, value = read
            assert number > last and value == bytes([(number - 1) % 251]) * SIZE, "torn"
            last, seen = number, seen + 1
        # Where both share one CPU with others, there is one for each turn of the writer.
        assert seen > 100, f"{seen} records, {overtaken} overtaken"
        assert last > seen, "the writer waited for nobody"


def test_raw_bytes_would_have_been_torn(start: Start) -> None:
    """The test above can fail: the same without the record does."""
    with asmp_rt.Mbuff.alloc("a", SIZE) as memory, memoryview(memory) as view:
        other = start(
            f"""
memory = memoryview(asmp_rt.Mbuff.attach("a"))
print("writes")
for value in itertools.cycle(range(251)):
    memory[:] = bytes([value]) * {SIZE}
"""
        )
        assert told(other) == "writes"
        end = time.monotonic() + PATIENCE_S
        while len(set(bytes(view))) == 1 and time.monotonic() < end:
            pass
        assert time.monotonic() < end


def test_a_killed_writer_leaves_a_whole_record_and_the_next_goes_on(start: Start) -> None:
    with asmp_rt.Record.alloc("a", SIZE) as record:
        last = 0
        for _ in range(3):
            other = start(
                f"""
writer = asmp_rt.Record.attach("a").writer()
for value in itertools.cycle(range(251)):
    writer.write(bytes([value]) * {SIZE})
"""
            )
            end = time.monotonic() + PATIENCE_S
            while number_of(record) < last + 500 and time.monotonic() < end:
                pass
            other.kill()
            other.wait()
            read = record.read()
            assert read and read[0] >= last + 500 and len(set(read[1])) == 1
            last = read[0]
        with record.writer() as writer:
            writer.write(b"x" * SIZE)
        assert record.read() == (last + 1, b"x" * SIZE)


def number_of(record: asmp_rt.Record) -> int:
    try:
        read = record.read()
    except asmp_rt.Overtaken:
        return 0
    return read[0] if read else 0


def test_a_record_has_one_writer_of_one_size() -> None:
    with asmp_rt.Record.alloc("a", 5) as record, record.writer() as writer:
        with pytest.raises(asmp_rt.RoleTaken, match="^channel a already has a writer$"):
            record.writer()
        for wrong in (b"", b"1234", b"123456"):
            with pytest.raises(
                asmp_rt.BadRecord, match=f"^got {len(wrong)} bytes for a record of 5$"
            ):
                writer.write(wrong)
        with pytest.raises(asmp_rt.BadRecord, match="^the buffer has 4 bytes, the record has 5$"):
            record.readinto(bytearray(4))
        assert record.read() is None
        writer.close()
        with pytest.raises(asmp_rt.Closed, match="^the writer of record a is closed$"):
            writer.write(b"12345")
