"""When bytes came, by the kernel: a client that gets its turn late knows how late it was.

The kernel stamps what it receives (SO_TIMESTAMPNS, socket(7)), and tells the newest stamp of what
a read returned. On Linux, over plain TCP; elsewhere nothing is known, and nothing is claimed.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
_TIMESPEC = struct.Struct("qq")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size)


def stamp(connection: socket.socket) -> None:
    """Asks the kernel for stamps on this connection, where it gives them."""
    with contextlib.suppress(OSError):  # another system has a number of its own
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class Arrivals(io.RawIOBase):
    """What a connection receives. `raw` is its plain file, which closes with this one."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._connection = connection
        self._raw = raw
        self._came: float | None = None

    def late(self) -> float | None:
        """Seconds that what was read last has waited for its reader until now; None: unknown."""
        return None if self._came is None else max(time.time() - self._came, 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count, said, _, _ = self._connection.recvmsg_into([buffer], _ROOM)
        for level, kind, value in said:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                self._came = seconds + nanoseconds * 1e-9
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
