# SPDX-License-Identifier: Apache-2.0 OR MIT
"""FifoWriter: the native class, with asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from . import _native
from ._errors import Closed, TimedOut
from ._waiter import Waiter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# A coroutine that always finds room lets other tasks run after so many records.
_RECORDS_IN_A_ROW = 64


class FifoWriter(_native.FifoWriter):
    """The writer of a FIFO: `Fifo.writer()`. It wakes a reader that sleeps.

    Blocking: `write`, `wait`. Not blocking: `try_write`. In a coroutine:
    `await writer.put(record)`. Leaving `with` closes it, and another process can become the writer.
    """

    def __init__(self, fifo: _native.Fifo) -> None:
        self._waiter = Waiter(f"fifo {self.name}, room", self._room)
        # Records that wait for room, in order of arrival; the first one is next.
        self._queue: list[tuple[bytes]] = []
        self._in_a_row = 0

    async def put(self, record: ReadableBuffer) -> None:
        """Put a whole record in; wait for room, first come, first served. A cancelled put (for
        example by asyncio.timeout) puts nothing in.

        Raises PeerGone (there is no room, and the reader has ended), Closed, BadRecord, TypeError,
        BufferError.
        """
        self._in_a_row += 1
        if self._in_a_row >= _RECORDS_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        if not self._queue and self.try_write(record):
            return
        self._in_a_row = 0
        # A copy: the caller may change the record meanwhile.
        ours = (bytes(memoryview(record)),)
        try:
            # A record that never fits is refused now, not when its turn comes.
            self.wait(len(ours[0]), 0)
        except TimedOut:
            pass
        self._queue.append(ours)
        try:
            while self._queue[0] is not ours or not self.try_write(ours[0]):
                await self._waiter.ready()
        finally:
            self._queue = [other for other in self._queue if other is not ours]
            self._waiter.end_waits(None)

    def _room(self, seconds: float) -> None:
        queue = self._queue
        self.wait(len(queue[0][0]) if queue else 1, seconds)

    def close(self) -> None:
        """Release the role. Coroutines that wait get Closed at once, threads within 100 ms."""
        super().close()
        self._waiter.end_waits(Closed(f"the writer of fifo {self.name} is closed"))
