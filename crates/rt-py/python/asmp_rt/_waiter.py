# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lets coroutines wait for an end of a FIFO.

A FIFO has no descriptor that asyncio could poll: its writer stores words, and at most wakes a
futex. So one thread waits for the coroutines, only while there are any. The thread takes no
records: the coroutines do when it has woken them. So a cancelled coroutine loses none.
"""

import asyncio
import threading
from collections.abc import Callable

from ._errors import TimedOut

# How long the thread sleeps at a time, and how many idle slices it waits for the next coroutine.
_SLICE_S = 0.1
_IDLE_SLICES = 5


class Waiter:
    """`wait(seconds)` returns when the end is ready, raises TimedOut when it is not, or raises an
    error."""

    def __init__(self, name: str, wait: Callable[[float], None]) -> None:
        self._name = name
        self._wait = wait
        self._changed = threading.Condition()
        self._waiting: list[asyncio.Future[None]] = []
        self._thread: threading.Thread | None = None

    async def ready(self) -> None:
        """Returns when the end may be ready: check again. Raises the errors of `wait`, except
        TimedOut."""
        future = asyncio.get_running_loop().create_future()
        try:
            with self._changed:
                self._waiting.append(future)
                self._changed.notify()
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name)
                    thread.start()
                    self._thread = thread
            await future
        finally:
            with self._changed:
                if future in self._waiting:
                    self._waiting.remove(future)

    def end_waits(self, error: Exception | None) -> None:
        """End all waits. Any thread may call it."""
        with self._changed:
            ended, self._waiting = self._waiting, []
        for future in ended:
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, error)
            except RuntimeError:
                # The event loop has ended, and with it the coroutine.
                pass

    def _run(self) -> None:
        while self._is_needed():
            try:
                self._wait(_SLICE_S)
            except TimedOut:
                continue
            except Exception as error:
                self.end_waits(error)
            else:
                self.end_waits(None)

    def _is_needed(self) -> bool:
        """Whether a coroutine waits, or does within half a second. If not, the thread ends."""
        with self._changed:
            # Do not delay the end of the program: Python joins this thread after the main thread
            # has ended.
            for _ in range(_IDLE_SLICES):
                if self._waiting or not threading.main_thread().is_alive():
                    break
                self._changed.wait(_SLICE_S)
            if self._waiting and threading.main_thread().is_alive():
                return True
            self._thread = None
            return False


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
