"""The bridge between an end that sleeps in the kernel and coroutines.

Nothing that asyncio can poll says that a FIFO has something: its writer stores words, and at most wakes a futex. So while
coroutines wait, and only then, one thread sleeps there for them. It takes nothing out of the FIFO: coroutines do, when it
has woken them. A coroutine that is cancelled meanwhile has taken nothing, and nothing is lost.
"""

import asyncio
import threading
from collections.abc import Callable

from ._errors import TimedOut

# How long a thread sleeps at once, and how long one that nobody needs stays for the next.
_SLICE_S = 0.1
_IDLE_SLICES = 5


class Waiter:
    """`wait(seconds)` returns when there is something, raises TimedOut when there is not, and else what is wrong."""

    def __init__(self, name: str, wait: Callable[[float], None]) -> None:
        self._name = name
        self._wait = wait
        self._changed = threading.Condition()
        self._waiting: list[asyncio.Future[None]] = []
        self._thread: threading.Thread | None = None

    async def ready(self) -> None:
        """Returns when there is something, or there was: look again. Raises what `wait` raised, but TimedOut."""
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

    def tell(self, error: Exception | None) -> None:
        """Ends all waits, from any thread."""
        with self._changed:
            told, self._waiting = self._waiting, []
        for future in told:
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, error)
            except RuntimeError:
                # Its loop has ended, and with it the coroutine.
                pass

    def _run(self) -> None:
        while self._is_needed():
            try:
                self._wait(_SLICE_S)
            except TimedOut:
                continue
            except Exception as error:
                self.tell(error)
            else:
                self.tell(None)

    def _is_needed(self) -> bool:
        """Does anybody wait, or come to wait within half a second? If not, the thread is no longer there."""
        with self._changed:
            # A program that ends is not held up: its other threads are waited for after the main one has ended.
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
