# SPDX-License-Identifier: Apache-2.0 OR MIT
"""FifoReader: the native class, with asyncio."""

import asyncio
from typing import Self

from . import _native
from ._errors import Closed, Overtaken, PeerGone, TimedOut
from ._waiter import Waiter

# A loop over a FIFO that is never empty lets other tasks run after so many records.
_RECORDS_IN_A_ROW = 64


class FifoReader(_native.FifoReader):
    """The reader of a FIFO: `Fifo.reader()`. One record is one `bytes`, as it was written.

    Blocking: `for record in reader`, `read`, `readinto`, `wait`. Not blocking: `try_read`,
    `try_readinto`. In a coroutine: `async for record in reader`, `await reader.get()`. Leaving
    `with` closes it, and another process can become the reader.
    """

    def __init__(self, fifo: _native.Fifo) -> None:
        self._waiter = Waiter(self.fileno)
        self._in_a_row = 0

    async def get(self) -> bytes:
        """Read the oldest record; wait for it. A cancelled get (for example by asyncio.timeout)
        takes no record.

        Raises PeerGone (within 100 ms), Corrupt (once; the next read continues), Closed, Cancelled.
        """
        while True:
            if self.cancelled:
                self.wait(0)
            self._in_a_row += 1
            if self._in_a_row >= _RECORDS_IN_A_ROW:
                self._in_a_row = 0
                await asyncio.sleep(0)
            try:
                record = self.try_read()
            except Overtaken:
                continue
            if record is not None:
                return record
            self._in_a_row = 0
            try:
                # Says why no record will come.
                self.wait(0)
            except TimedOut:
                await self._waiter.ready()

    def __aiter__(self) -> Self:
        if self.closed:
            raise Closed(f"the reader of fifo {self.name} is closed")
        return self

    async def __anext__(self) -> bytes:
        """Iterate over records until the writer ends (after its last record) or another task closes
        this end."""
        try:
            return await self.get()
        except (PeerGone, Closed):
            raise StopAsyncIteration from None
