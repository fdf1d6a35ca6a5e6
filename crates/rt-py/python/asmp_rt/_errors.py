# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Exceptions. Each has one line that says what failed and what to do. All are an `Error`."""


class Error(Exception):
    """Any error of asmp_rt."""


class BadName(Error, ValueError):
    """An invalid name: use 1 to 64 letters, digits, '-' or '_'."""


class BadSize(Error, ValueError):
    """An invalid size."""


class BadRecord(Error, ValueError):
    """A record that never fits: empty, too large, or of another size than the record has."""


class NameTaken(Error, FileExistsError):
    """A living process has a channel of that name."""


class NoSuchChannel(Error, FileNotFoundError):
    """No living process has a channel of that name."""


class Mismatch(Error):
    """The channel has another size, kind or version than expected, or its header is damaged."""


class RoleTaken(Error):
    """The channel already has a reader, or already has a writer."""


class NoRoom(Error):
    """The kernel has no memory (or no huge page) left."""


class ForeignDirectory(Error, PermissionError):
    """Other users own the directory of names, or may write there."""


class HiddenChannel(Error, PermissionError):
    """Only processes with other rights (capabilities, user IDs) have the channel."""


class NotPermitted(Error, PermissionError):
    """A channel that is offered to other users, or for reading only, or by another user."""


class ChannelIO(Error, OSError):
    """A system call failed."""


class TimedOut(Error, TimeoutError):
    """The timeout passed."""


class PeerGone(Error, ConnectionError):
    """The other end was closed, or its process has ended. All its records were read."""


class Cancelled(Error):
    """Another thread has ended the waits of this end by `cancel`."""


class Corrupt(Error):
    """The other side wrote invalid values into shared memory. The contents are lost; the next read
    continues."""


class Overtaken(Error):
    """The writer replaced the record during each attempt to read it: try again."""


class Closed(Error, ValueError):
    """The object is closed or detached."""


class InUse(Error, BufferError):
    """The memory has views: release them first."""
