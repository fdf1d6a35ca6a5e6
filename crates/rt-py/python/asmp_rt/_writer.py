# SPDX-License-Identifier: Apache-2.0 OR MIT
"""FifoWriter: the native class, with asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from . import _native
from ._errors import TimedOut
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
        self._waiter = Waiter(self.fileno)
        # Records that wait for room, in order of arrival; the first one is next.
        self._queue: list[tuple[bytes]] = []
        self._in_a_row = 0

    async def put(self, record: ReadableBuffer) -> None:
        """Put a whole record in; wait for room, first come, first served. A cancelled put (for
        example by asyncio.timeout) puts nothing in.

        Raises PeerGone (there is no room, and the reader has ended), Closed, Cancelled, BadRecord,
        TypeError, BufferError.
        """
        self._in_a_row += 1
        if self._in_a_row >= _RECORDS_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        if self.cancelled:
            self.wait(1, 0)
        if not self._queue and self.try_write(record):
            return
        self._in_a_row = 0
        # A copy: the caller may change the record meanwhile.
        ours = (bytes(memoryview(record)),)
        # A record that never fits is refused now, not when its turn comes.
        self._check_size(len(ours[0]))
        self._queue.append(ours)
        try:
            while not self._put_in_turn(ours):
                await self._waiter.ready()
        finally:
            self._queue = [other for other in self._queue if other is not ours]
            self._waiter.wake()

    def _put_in_turn(self, ours: tuple[bytes]) -> bool:
        """Puts the record in if it is next and there is room. Raises why there will be none."""
        if self._queue[0] is not ours:
            return False
        while not self.try_write(ours[0]):
            try:
                self.wait(len(ours[0]), 0)
            except TimedOut:
                return False
        return True
