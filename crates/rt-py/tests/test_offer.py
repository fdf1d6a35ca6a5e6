# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Channels for programs of other users: both directions, over a Unix socket."""

import ctypes
import errno
import os
import select
import shutil
import stat
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import asmp_rt
from conftest import PATIENCE_S, Start, told


@contextmanager
def served(offer: asmp_rt.Offer) -> Iterator[list[tuple[int, int]]]:
    """Serves in a thread until the block ends; who got the channel."""
    peers: list[tuple[int, int]] = []

    def serve() -> None:
        try:
            while True:
                peers.append(offer.serve())
        except asmp_rt.Closed:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield peers
    finally:
        offer.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def refusal(error: type[Exception], what: Callable[[], object]) -> str:
    """The line that it raises."""
    with pytest.raises(error) as raised:
        what()
    return str(raised.value)


def test_another_process_receives_a_fifo_that_it_cannot_attach_to(
    directory: Path, tmp_path: Path, start: Start
) -> None:
    socket = tmp_path / "socket"
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.writer() as writer:
        with writer.offer(socket) as offer, served(offer) as peers:
            other = start(f"""
os.environ["ASMP_CHANNELS"] = "/nowhere"
fifo = asmp_rt.Fifo.receive({str(socket)!r}, timeout={PATIENCE_S})
with fifo.reader() as reader:
    assert reader.has_writer
    try:
        fifo.reader()
    except asmp_rt.RoleTaken:
        print("one reader")
    print(reader.read({PATIENCE_S}).decode())
""")
            assert told(other) == "one reader"
            assert writer.has_reader
            assert writer.try_write(b"hello")
            assert told(other) == "hello"
            assert other.wait(PATIENCE_S) == 0
            assert peers == [(os.geteuid(), other.pid)]
    assert not socket.exists()


def test_a_reader_offers_the_writers_end(tmp_path: Path) -> None:
    with asmp_rt.Fifo.create("a", 1000) as fifo, fifo.reader() as reader:
        with reader.offer(tmp_path / "socket") as offer, served(offer):
            received = asmp_rt.Fifo.receive(tmp_path / "socket", timeout=PATIENCE_S)
            with received.writer() as writer:
                assert writer.try_write(b"a command")
                assert reader.read(PATIENCE_S) == b"a command"


def test_a_record_and_memory_are_for_reading_unless_they_are_offered_for_writing(
    tmp_path: Path,
) -> None:
    record = asmp_rt.Record.alloc("state", 8)
    with record.writer() as writer:
        writer.write(b"12345678")
    with record.offer(tmp_path / "reads") as offer, served(offer):
        received = asmp_rt.Record.receive(tmp_path / "reads", timeout=PATIENCE_S)
        assert received.read() == (1, b"12345678")
        line = refusal(asmp_rt.NotPermitted, received.writer)
        assert line == "channel state was offered for reading: offer it for writing too"
    with record.offer(tmp_path / "writes", writable=True) as offer, served(offer):
        received = asmp_rt.Record.receive(tmp_path / "writes", timeout=PATIENCE_S)
        with received.writer() as writer:
            assert record.has_writer and received.has_writer
            writer.write(b"abcdefgh")
    assert record.read() == (2, b"abcdefgh")

    memory = asmp_rt.Mbuff.alloc("image", 3)
    for writable in (False, True):
        socket = tmp_path / f"image-{writable}"
        with memory.offer(socket, writable=writable) as offer, served(offer):
            copy = asmp_rt.Mbuff.receive(socket, timeout=PATIENCE_S)
            assert copy.readonly is not writable
            view = memoryview(copy)
            if writable:
                view[:] = b"xyz"
            else:
                with pytest.raises(TypeError):
                    view[0] = 1
            view.release()
    assert bytes(memory) == b"xyz"


def test_what_cannot_be_offered_or_received_is_said_in_one_line(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    record = asmp_rt.Record.alloc("state", 8)
    line = refusal(asmp_rt.BadName, lambda: record.offer("/run/" + "x" * 108))
    assert line.endswith("at most 107 bytes: choose another")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    line = refusal(asmp_rt.ForeignDirectory, lambda: record.offer(tmp_path / "open" / "socket"))
    assert "may be written by other users: choose a directory" in line
    line = refusal(asmp_rt.NoSuchChannel, lambda: asmp_rt.Record.receive(socket))
    assert line == f"no channel at {socket}: start the program that offers it"
    socket.write_text("kept")
    line = refusal(asmp_rt.NameTaken, lambda: record.offer(socket))
    assert line == f"{socket} is no socket: remove it, or choose another path"
    socket.unlink()
    with record.offer(socket) as offer:
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        line = refusal(asmp_rt.TimedOut, lambda: asmp_rt.Record.receive(socket, timeout=0.05))
        assert line == f"timed out at {socket}"
        # It has gone again: there is somebody to serve, and nobody to have it.
        assert select.select([offer], [], [], PATIENCE_S)[0] == [offer]
        refusal(asmp_rt.TimedOut, lambda: offer.serve(0))
        refusal(ValueError, lambda: offer.serve(-1))
        with served(offer):
            line = refusal(asmp_rt.Mismatch, lambda: asmp_rt.Fifo.receive(socket))
            assert "it is of kind 2, expected 1 (Fifo)" in line
    refusal(asmp_rt.Closed, lambda: offer.serve(0))


def test_users_that_the_program_does_not_name_get_nothing(tmp_path: Path, start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's process needs root")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    record = asmp_rt.Record.alloc("state", 8)
    socket = tmp_path / "socket"
    with record.offer(socket, [65534, 65533]) as offer, served(offer):
        for user, said in ((65534, "got it"), (65532, "refused")):
            other = start(f"""
os.setgroups([]); os.setgid({user}); os.setuid({user})
try:
    asmp_rt.Record.receive({str(socket)!r}, owner=0, timeout={PATIENCE_S})
    print("got it")
except asmp_rt.NotPermitted:
    print("refused")
""")
            assert told(other) == said
        assert offer.refused == 1


USER = 65534
# unshare(2) and mount(2).
CLONE_NEWNS, MS_NOSUID, MS_PRIVATE_REC = 0x20000, 2, 0x44000


def become_user() -> None:
    """A user without rights, with a /dev/shm of its own: a program with file capabilities keeps
    its names there, whatever its environment says."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Each only after the one before: else it would be the machine's.
    if (
        libc.unshare(CLONE_NEWNS) != 0
        or libc.mount(None, b"/", None, MS_PRIVATE_REC, None) != 0
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID, b"mode=1777") != 0
    ):
        raise OSError(ctypes.get_errno(), "a namespace of mounts")
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def test_a_program_with_file_capabilities_and_a_script_without_rights_meet_in_both_directions(
    capable: str, tmp_path: Path, start: Start
) -> None:
    if os.geteuid() != 0:
        pytest.skip("file capabilities and other users need root")
    sockets = tmp_path / "sockets"
    sockets.mkdir(mode=0o755)
    os.chown(sockets, USER, USER)
    for parent in [tmp_path, *tmp_path.parents[:2]]:
        parent.chmod(0o755)
    motion = tmp_path / "motion"
    shutil.copy(capable, motion)
    motion.chmod(0o755)
    try:
        # As setcap(8) writes cap_sys_nice+ep: revision 2, effective, bit 23 permitted.
        capability = struct.pack("<5I", 0x02000001, 1 << 23, 0, 0, 0)
        os.setxattr(motion, "security.capability", capability)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip(f"{tmp_path} takes no file capabilities")
    for user in (USER, 65533):
        command = [str(motion), "offers", str(sockets), str(user)]
        try:
            program = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, preexec_fn=become_user, cwd="/"
            )
        except (PermissionError, subprocess.SubprocessError) as error:
            pytest.skip(f"no namespace or no CAP_SYS_NICE here: {error}")
        with program:
            try:
                line = told(program)
                if line == "no capability":
                    pytest.skip("the file system gives no capabilities")
                assert line == "offers"
                script = start(f"""
os.setgroups([]); os.setgid({user}); os.setuid({user})
how = {{"owner": {USER}, "timeout": {PATIENCE_S}}}
state = asmp_rt.Record.receive("{sockets}/state", **how)
with (
    asmp_rt.Fifo.receive("{sockets}/samples", **how).reader() as samples,
    asmp_rt.Fifo.receive("{sockets}/commands", **how).writer() as commands,
):
    for number in range(1, 101):
        commands.write(struct.pack("=q", number), {PATIENCE_S})
        assert samples.read({PATIENCE_S}) == struct.pack("=q", 2 * number)
        assert state.read() == (number, struct.pack("=q", number))
try:
    state.writer()
except asmp_rt.NotPermitted:
    print("they met")
""")
                assert told(script) == "they met"
                assert told(program) == "the peer has gone"
            finally:
                program.kill()
