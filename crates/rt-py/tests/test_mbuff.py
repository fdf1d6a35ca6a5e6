# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Raw shared memory: the same for all, without copies, and never taken away under a view."""

import gc

import pytest
from conftest import Start, told

import asmp_rt


def test_what_is_allocated_twice_is_one_memory() -> None:
    with asmp_rt.Mbuff.alloc("a", 10) as first, asmp_rt.Mbuff.alloc("a", 10) as second:
        with memoryview(first) as view, memoryview(second) as other:
            assert len(first) == len(view) == 10 and bytes(other) == bytes(10)
            view[2:5] = b"abc"
            assert bytes(other) == b"\0\0abc\0\0\0\0\0"
            assert view.format == "B" and view.c_contiguous and not view.readonly


def test_numpy_sees_what_another_process_writes_without_a_copy(start: Start) -> None:
    numpy = pytest.importorskip("numpy")
    with asmp_rt.Mbuff.alloc("a", 8 * 1000) as memory:
        numbers = numpy.frombuffer(memory, dtype=numpy.uint64)
        other = start(
            """
with asmp_rt.Mbuff.attach("a") as memory, memoryview(memory).cast("Q") as numbers:
    for place in range(1000):
        numbers[place] = place * place
print("written")
"""
        )
        assert told(other) == "written"
        assert numbers.tolist() == [place * place for place in range(1000)]
        numbers[0] = 7
        assert bytes(memoryview(memory)[:2]) == b"\7\0"
        del numbers


def test_a_readonly_attachment_gives_no_way_to_write() -> None:
    numpy = pytest.importorskip("numpy")
    with asmp_rt.Mbuff.alloc("a", 8), asmp_rt.Mbuff.attach("a", readonly=True) as memory:
        assert memory.readonly
        with memoryview(memory) as view:
            assert view.readonly
            with pytest.raises(TypeError, match="read-only"):
                view[0] = 1
        array = numpy.frombuffer(memory, dtype=numpy.uint8)
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        with (
            asmp_rt.Fifo.create("b", 100) as fifo,
            fifo.reader() as reader,
            fifo.writer() as writer,
        ):
            writer.write(memory)
            with pytest.raises(BufferError, match="read-only"):
                reader.readinto(memory)
            assert reader.read() == bytes(8)
        del array


def test_detach_is_refused_while_a_view_lives_and_the_view_stays_good() -> None:
    memory = asmp_rt.Mbuff.alloc("a", 8)
    views = [memoryview(memory), memoryview(memory)]
    with pytest.raises(asmp_rt.InUse, match=r"^mbuff a: 2 views are in use: release them first"):
        memory.detach()
    views.pop().release()
    with pytest.raises(BufferError, match="1 view is in use"):
        memory.detach()
    views[0][0] = 1
    with pytest.raises(asmp_rt.InUse), memory:
        pass
    assert not memory.closed
    with pytest.raises(KeyError), memory:
        raise KeyError("what went wrong in the block comes first")
    assert not memory.closed
    views.pop()
    memory.detach()
    memory.detach()
    assert memory.closed
    for use in (lambda: len(memory), lambda: memoryview(memory)):
        with pytest.raises(asmp_rt.Closed, match="^mbuff a is closed$"):
            use()


def test_a_view_keeps_the_memory_of_an_object_that_nobody_has_any_more() -> None:
    view = memoryview(asmp_rt.Mbuff.alloc("a", 1 << 20))
    gc.collect()
    view[-1] = 5
    with asmp_rt.Mbuff.attach("a") as again:
        assert memoryview(again)[-1] == 5
    view.release()
    with pytest.raises(asmp_rt.NoSuchChannel):
        asmp_rt.Mbuff.attach("a")


def test_memory_outlives_the_process_that_made_it(start: Start) -> None:
    other = start(
        'memory = asmp_rt.Mbuff.alloc("a", 3)\nmemoryview(memory)[:] = b"abc"\n'
        'print("made")\ntime.sleep(1000)'
    )
    assert told(other) == "made"
    with asmp_rt.Mbuff.attach("a") as memory:
        other.kill()
        other.wait()
        assert bytes(memory) == b"abc"
