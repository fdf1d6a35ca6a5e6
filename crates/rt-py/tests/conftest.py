# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tests share: a directory of names for each, and other processes that end with their
test."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[[str], "subprocess.Popen[str]"]

# How long a test waits for what must come, in seconds.
PATIENCE_S = 30.0
# Before the code of another process, which ends with the tests however they end (PR_SET_PDEATHSIG,
# SIGKILL).
# A shell starts a background job with SIGINT ignored, and so would be what that starts.
PROLOGUE = """
import asmp_rt, ctypes, itertools, os, signal, struct, sys, time
ctypes.CDLL(None).prctl(1, 9)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the names of the test's channels, also in the processes it starts."""
    path = tmp_path / "channels"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("ASMP_CHANNELS", str(path))
    return path


@pytest.fixture
def start() -> Iterator[Start]:
    """Another process of Python that runs this code; it tells things on its standard output."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", "-u", "-c", PROLOGUE + code]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def told(process: "subprocess.Popen[str]") -> str:
    """The next line that it says."""
    assert process.stdout
    line = process.stdout.readline()
    assert line, "the other process has ended"
    return line.rstrip("\n")


def cpu_s() -> float:
    """Seconds of CPU that this process has used, in all its threads."""
    times = os.times()
    return times.user + times.system


def threads_of(name: str) -> int:
    """Threads of this process by that name, also those that Python does not know."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "comm").read_text().rstrip("\n") == name
        except OSError:
            pass
    return found


@pytest.fixture
def sound_card() -> str:
    """crates/rt/examples/sound_card.rs, built."""
    return os.environ["SOUND_CARD"]


@pytest.fixture
def capable() -> str:
    """crates/rt-c/tests/capable.c, built."""
    return os.environ["CAPABLE"]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
