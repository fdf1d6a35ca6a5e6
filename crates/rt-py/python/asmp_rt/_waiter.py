# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lets coroutines wait for an end of a FIFO: its event loop polls the descriptor.

The descriptor stays readable until the end finds nothing. A coroutine that is woken looks itself.
So a cancelled one takes nothing with it.
"""

import asyncio
import os
from collections.abc import Callable


class Waiter:
    """`fileno()` returns the descriptor of the end."""

    def __init__(self, fileno: Callable[[], int]) -> None:
        self._fileno = fileno
        # A descriptor of its own for each loop: the end may close its own at any time.
        self._loops: dict[asyncio.AbstractEventLoop, tuple[int, list[asyncio.Future[None]]]] = {}

    async def ready(self) -> None:
        """Returns when the end may be ready, or was closed: check again."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            fd = os.dup(self._fileno())
            loop.add_reader(fd, self._wake, loop)
            self._loops[loop] = fd, []
        fd, waiting = self._loops[loop]
        future = loop.create_future()
        waiting.append(future)
        try:
            await future
        finally:
            waiting.remove(future)
            if not waiting:
                del self._loops[loop]
                loop.remove_reader(fd)
                os.close(fd)

    def wake(self) -> None:
        """Let all coroutines check again. Any thread may call it."""
        for loop in list(self._loops):
            try:
                loop.call_soon_threadsafe(self._wake, loop)
            except RuntimeError:
                # The event loop has ended, and with it the coroutine.
                pass

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        _, waiting = self._loops.get(loop, (None, []))
        for future in waiting:
            if not future.done():
                future.set_result(None)
