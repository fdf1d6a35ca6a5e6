# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a newcomer, or an enemy, does wrong: one clear line, its own error, nothing half done."""

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import asmp_rt

OBJECTS: dict[str, Callable[[str], object]] = {
    "fifo": lambda name: asmp_rt.Fifo.create(name, 1000),
    "mbuff": lambda name: asmp_rt.Mbuff.alloc(name, 1000),
    "record": lambda name: asmp_rt.Record.alloc(name, 1000),
}
ATTACH: dict[str, Callable[[str], object]] = {
    "fifo": asmp_rt.Fifo.attach,
    "mbuff": asmp_rt.Mbuff.attach,
    "record": asmp_rt.Record.attach,
}


def refusal(error: type[Exception], what: Callable[[], object]) -> str:
    """The line that it raises."""
    with pytest.raises(error) as raised:
        what()
    line = str(raised.value)
    assert line and "\n" not in line
    return line


def links(directory: Path) -> list[Path]:
    """Of channels: all in the directory but its lock."""
    return [path for path in directory.iterdir() if path.name != ".lock"]


@pytest.mark.parametrize("kind", OBJECTS)
def test_names_that_are_none_are_refused(kind: str, directory: Path) -> None:
    for name in ("", "../a", "a b", "a.1", "ä", "a" * 65, "a\0b"):
        for make in (OBJECTS[kind], ATTACH[kind]):
            line = refusal(asmp_rt.BadName, lambda: make(name))
            assert line.startswith("invalid channel name ")
            assert line.endswith(": use 1 to 64 letters, digits, '-' or '_'")
    wrong: Any
    for wrong in (None, 7, b"a"):
        refusal(TypeError, lambda: ATTACH[kind](wrong))
    assert not links(directory)


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_channel_that_is_not_there_says_where_it_was_looked_for(
    kind: str, directory: Path
) -> None:
    line = refusal(asmp_rt.NoSuchChannel, lambda: ATTACH[kind]("a"))
    assert line == f"no channel a in {directory}: create the channel first"
    with pytest.raises(FileNotFoundError):
        ATTACH[kind]("a")


def test_a_name_is_taken_until_the_last_that_has_it_lets_it_go() -> None:
    first = asmp_rt.Fifo.create("a", 1000)
    line = refusal(asmp_rt.NameTaken, lambda: asmp_rt.Fifo.create("a", 1000))
    assert line == "channel a already exists: attach to it, or choose another name"
    reader = first.reader()
    first.close()
    refusal(FileExistsError, lambda: asmp_rt.Fifo.create("a", 1000))
    reader.close()
    asmp_rt.Fifo.create("a", 1000).close()


def test_one_reader_and_one_writer() -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        again = asmp_rt.Fifo.attach("a")
        assert refusal(asmp_rt.RoleTaken, again.reader) == "channel a already has a reader"
        assert refusal(asmp_rt.RoleTaken, again.writer) == "channel a already has a writer"
        writer.write(b"1")
        assert reader.read() == b"1"
        reader.close()
        writer.close()
        with again.reader(), again.writer():
            pass


def test_sizes_that_are_none_are_refused(directory: Path) -> None:
    for size in (-1, 0, 15, (1 << 29) - 7, 1 << 100):
        line = refusal(asmp_rt.BadSize, lambda: asmp_rt.Fifo.create("a", size))
        assert line == f"invalid capacity {size}: use 16 to 536870904 bytes"
    for size in (-1, 0, (1 << 30) + 1, 1 << 100):
        line = refusal(asmp_rt.BadSize, lambda: asmp_rt.Mbuff.alloc("a", size))
        assert line == f"invalid size {size}: use 1 to 1073741824 bytes"
        refusal(asmp_rt.BadSize, lambda: asmp_rt.Record.alloc("a", size))
    wrong: Any
    for wrong in ("1000", 1e3, None):
        refusal(TypeError, lambda: asmp_rt.Fifo.create("a", wrong))
    line = refusal(
        ValueError,
        lambda: asmp_rt.Fifo.create("a", 1000, overflow="drop"),  # type: ignore[arg-type]
    )
    assert line == 'invalid overflow "drop": use "refuse" or "drop-oldest"'
    assert not links(directory)


def test_another_size_or_kind_is_refused_with_both() -> None:
    fifo, memory = asmp_rt.Fifo.create("f", 1000), asmp_rt.Mbuff.alloc("m", 100)
    record = asmp_rt.Record.alloc("r", 10)
    for what, line in {
        lambda: asmp_rt.Mbuff.alloc(
            "m", 101
        ): "mbuff m has 100 bytes, not 101: free it in all processes, or use its size",
        lambda: asmp_rt.Record.attach("m"): "mbuff m holds raw bytes, expected a record",
        lambda: asmp_rt.Record.alloc(
            "r", 11
        ): "mbuff r holds a record of 10 bytes, expected a record of 11 bytes",
        lambda: asmp_rt.Mbuff.attach("r"): "mbuff r holds a record of 10 bytes, expected raw bytes",
        lambda: asmp_rt.Mbuff.attach(
            "f"
        ): "channel f does not match: it is of kind 1, expected 2 (Mbuff)",
        lambda: asmp_rt.Fifo.attach(
            "m"
        ): "channel m does not match: it is of kind 2, expected 1 (Fifo)",
    }.items():
        assert refusal(asmp_rt.Mismatch, what) == line
    fifo.close()
    memory.detach()
    record.detach()


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_header_of_another_version_or_that_lies_is_refused(kind: str, directory: Path) -> None:
    made = OBJECTS[kind]("a")
    (link,) = links(directory)
    with link.open("r+b", buffering=0) as file:
        header = os.pread(file.fileno(), 64, 0)
        for word, value, line in (
            (0, 1, "no channel of asmp"),
            (1, 2, "it has version 2, this program has 1"),
            (3, 0, "its header says 0 bytes"),
            (3, 1 << 40, "its header says 1099511627776 bytes"),
            (4, 1 << 63, "9223372036854775808"),
        ):
            os.pwrite(file.fileno(), struct.pack("=Q", value), 8 * word)
            assert line in refusal(asmp_rt.Mismatch, lambda: ATTACH[kind]("a"))
            os.pwrite(file.fileno(), header, 0)
    ATTACH[kind]("a")
    assert made


def test_records_that_are_none_are_refused_and_the_fifo_is_as_it_was() -> None:
    with asmp_rt.Fifo.create("a", 100) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        most = fifo.capacity_bytes - 8
        for record in (b"", bytes(most + 1)):
            for write in (writer.write, writer.try_write):
                line = refusal(asmp_rt.BadRecord, lambda: write(record))
                assert line == f"invalid record of {len(record)} bytes: fifo a takes 1 to {most}"
        line = refusal(TypeError, lambda: writer.write("text"))  # type: ignore[arg-type]
        assert line == "a record is bytes, not str: encode it, as in text.encode()"
        wrong: Any
        for wrong in (None, 7, 1.5, [1, 2], {}):
            refusal(TypeError, lambda: writer.write(wrong))
        for wrong in (memoryview(b"1234")[::2], numpy.zeros((3, 3))[:, 0]):
            assert "contiguous" in refusal(BufferError, lambda: writer.write(wrong))
        assert fifo.empty and reader.try_read() is None
        writer.write(bytes(most))
        assert reader.read() == bytes(most)


def test_buffers_that_are_none_are_refused_and_take_nothing_out() -> None:
    with asmp_rt.Fifo.create("a", 100) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        writer.write(b"1")
        for read in (reader.readinto, reader.try_readinto):
            assert "read-only" in refusal(BufferError, lambda: read(b"1234"))
            assert "empty" in refusal(ValueError, lambda: read(bytearray()))
            assert "contiguous" in refusal(BufferError, lambda: read(memoryview(bytearray(4))[::2]))
            wrong: Any
            for wrong in (None, 7, "text"):
                refusal(TypeError, lambda: read(wrong))
        assert reader.read() == b"1"


def test_timeouts_that_are_none_are_refused() -> None:
    with asmp_rt.Fifo.create("a", 100) as fifo, fifo.reader() as reader, fifo.writer() as writer:
        for seconds in (-1, -0.001, float("nan"), float("inf"), 1e300):
            for wait in (reader.read, reader.wait, lambda seconds: writer.write(b"1", seconds)):
                line = refusal(ValueError, lambda: wait(seconds))
                assert re.match(
                    r"invalid timeout \S+: use seconds, 0 or more, or None to wait without limit$",
                    line,
                )
        refusal(TypeError, lambda: reader.read("1"))  # type: ignore[arg-type]
        assert fifo.empty


def test_what_is_closed_says_so_and_closing_twice_is_nothing() -> None:
    fifo = asmp_rt.Fifo.create("a", 100)
    reader, writer = fifo.reader(), fifo.writer()
    for thing in (fifo, reader, writer):
        for _ in range(2):
            thing.close()
        assert thing.closed and thing.name == "a" and "closed" in repr(thing)
    for use, line in {
        fifo.reader: "fifo a is closed",
        lambda: fifo.capacity_bytes: "fifo a is closed",
        reader.read: "the reader of fifo a is closed",
        reader.try_read: "the reader of fifo a is closed",
        reader.wait: "the reader of fifo a is closed",
        lambda: iter(reader): "the reader of fifo a is closed",
        lambda: reader.has_writer: "the reader of fifo a is closed",
        lambda: writer.write(b"1"): "the writer of fifo a is closed",
        lambda: writer.dropped: "the writer of fifo a is closed",
    }.items():
        assert refusal(asmp_rt.Closed, use) == line


def test_a_directory_that_others_can_write_is_refused(directory: Path) -> None:
    directory.chmod(0o777)
    assert "chmod go-w" in refusal(asmp_rt.ForeignDirectory, lambda: asmp_rt.Fifo.create("a", 100))
    file = directory / "file"
    file.write_text("")
    refusal(asmp_rt.ChannelIO, lambda: asmp_rt.Fifo.create("a", 100, dir=file / "below"))


def test_a_directory_is_an_argument_too(tmp_path: Path) -> None:
    for path in (tmp_path / "one", str(tmp_path / "two")):
        with asmp_rt.Fifo.create("a", 100, dir=path) as fifo, fifo.writer() as writer:
            writer.write(b"1")
            with asmp_rt.Fifo.attach("a", dir=path).reader() as reader:
                assert reader.read() == b"1"


def test_huge_pages_are_given_or_refused_with_the_size() -> None:
    try:
        with asmp_rt.Mbuff.alloc("a", 100_000, huge=True) as memory:
            assert len(memory) == 100_000
    except asmp_rt.NoRoom as error:
        assert str(error).startswith("cannot allocate 100000 bytes of shared memory: ")
        pytest.skip(f"no huge pages here: {error}")


def test_every_error_is_one_of_ours_and_documented() -> None:
    errors = [getattr(asmp_rt, name) for name in asmp_rt.__all__]
    errors = [error for error in errors if issubclass(error, Exception)]
    assert len(errors) == 20
    assert all(issubclass(error, asmp_rt.Error) and error.__doc__ for error in errors)


def test_everything_public_has_a_docstring() -> None:
    for name in asmp_rt.__all__:
        thing = getattr(asmp_rt, name)
        assert thing.__doc__, name
        for member, value in vars(thing).items():
            assert member.startswith("_") or value.__doc__, f"{name}.{member}"


def test_an_end_is_made_of_a_fifo_only() -> None:
    wrong: Any
    ends: list[Any] = [asmp_rt.FifoReader, asmp_rt.FifoWriter]
    for end in ends:
        for wrong in ("a", None, 7):
            refusal(TypeError, lambda: end(wrong))
        refusal(TypeError, end)
    for thing in (asmp_rt.Fifo, asmp_rt.Mbuff, asmp_rt.Record, asmp_rt.RecordWriter):
        refusal(TypeError, thing)
