"""When bytes came, by the kernel: a client that gets its turn late knows how late it was.

The kernel stamps what it receives (SO_TIMESTAMPNS, socket(7)), and tells the newest stamp of what
a read returned: what waits is merged and keeps no other. On Linux, over plain TCP; elsewhere
nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import contextlib
import io
import math
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("qq")
_AT_ONCE = 20e-6  # seconds
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size)


def stamp(connection: socket.socket) -> None:
    """Asks the kernel for stamps on this connection, where it gives them."""
    with contextlib.suppress(OSError):  # another system has a number of its own
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class Wait(NamedTuple):
    """How many seconds bytes have waited to be read: `least` the newest of their read, `most` any
    of it, since they came after all of the read before. `read` numbers the connection's reads.
    """

    read: int
    least: float
    most: float


class Arrivals(io.RawIOBase):
    """What a connection receives. `raw` is its plain file, which closes with this one."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._connection = connection
        self._raw = raw
        self._reads = 0
        self._came: float | None = None
        self._before = -math.inf

    def wait(self, stamp: float) -> Wait | None:
        """Of what was read last, until `stamp`, CLOCK_MONOTONIC seconds; None: unknown."""
        if self._came is None:
            return None
        now = stamp + _wall_less_monotonic()
        return Wait(self._reads, max(now - self._came, 0.0), now - self._before)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count, said, _, _ = self._connection.recvmsg_into([buffer], _ROOM)
        self._reads += 1
        if self._came is not None:
            self._before, self._came = self._came, None
        for level, kind, value in said:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                self._came = seconds + nanoseconds * 1e-9
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _wall_less_monotonic() -> float:
    """The kernel's stamps are the wall's, ours aren't. A turn lost between both clocks would be
    taken for lateness, so they are read again if they weren't read at once.
    """
    best, found = math.inf, 0.0
    for _ in range(4):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < best:
            best, found = after - before, wall - before
        if best < _AT_ONCE:
            break
    return found
