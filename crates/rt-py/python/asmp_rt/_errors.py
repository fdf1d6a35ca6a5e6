"""What can go wrong, each with one line that says what and what to do. All of it is an `Error`."""


class Error(Exception):
    """Any error of asmp_rt."""


class BadName(Error, ValueError):
    """No name of a channel: those have 1 to 64 letters, digits, '-' or '_'."""


class BadSize(Error, ValueError):
    """No size of a channel."""


class BadRecord(Error, ValueError):
    """A record that never fits: empty, too large, or not of the one size."""


class NameTaken(Error, FileExistsError):
    """A process that lives has a channel of that name."""


class NoSuchChannel(Error, FileNotFoundError):
    """No process that lives has a channel of that name."""


class Mismatch(Error):
    """The channel is of another size, kind or version than was asked for, or its header is damaged."""


class RoleTaken(Error):
    """It has its one reader, or its one writer, already."""


class NoRoom(Error):
    """The kernel has no memory (or no huge page) for it."""


class ForeignDirectory(Error, PermissionError):
    """Others could change the directory of names."""


class ChannelIO(Error, OSError):
    """A system call failed."""


class TimedOut(Error, TimeoutError):
    """The timeout is over, and nothing came."""


class PeerGone(Error, ConnectionError):
    """The other end was there and has gone, or its process has ended; all that it had written was read."""


class Corrupt(Error):
    """The other side wrote into shared memory what no writer writes: what was in it is lost, the next read goes on."""


class Overtaken(Error):
    """The writer replaced record after record while each was being read: try again."""


class Closed(Error, ValueError):
    """This object was closed or detached."""


class InUse(Error, BufferError):
    """Views point into the memory: release them first."""
