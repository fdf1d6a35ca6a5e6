# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The time-sharing ends of asmp's channels: FIFOs, mbuffs and records. Real-time processes have the
other ends.

    with asmp_rt.Fifo.attach("samples").reader() as reader:
        for record in reader:       # bytes, as they were written; stops when the writer has ended
            ...
        # or: async for record in reader

    memory = asmp_rt.Mbuff.attach("image", readonly=True)
    pixels = numpy.frombuffer(memory, dtype=numpy.uint8)    # no copy

    number, state = asmp_rt.Record.attach("state").read()   # bytes of one whole record

Times are in seconds, sizes in bytes. A channel exists as long as a process has it open. Every error
is an `asmp_rt.Error`.
"""

from ._errors import (
    BadName,
    BadRecord,
    BadSize,
    Cancelled,
    ChannelIO,
    Closed,
    Corrupt,
    Error,
    ForeignDirectory,
    HiddenChannel,
    InUse,
    Mismatch,
    NameTaken,
    NoRoom,
    NoSuchChannel,
    NotPermitted,
    Overtaken,
    PeerGone,
    RoleTaken,
    TimedOut,
)
from ._native import Fifo, Mbuff, Offer, Record, RecordWriter
from ._reader import FifoReader
from ._writer import FifoWriter

__all__ = [
    "BadName",
    "BadRecord",
    "BadSize",
    "Cancelled",
    "ChannelIO",
    "Closed",
    "Corrupt",
    "Error",
    "Fifo",
    "FifoReader",
    "FifoWriter",
    "ForeignDirectory",
    "HiddenChannel",
    "InUse",
    "Mbuff",
    "Mismatch",
    "NameTaken",
    "NoRoom",
    "NoSuchChannel",
    "NotPermitted",
    "Offer",
    "Overtaken",
    "PeerGone",
    "Record",
    "RecordWriter",
    "RoleTaken",
    "TimedOut",
]
