"""uvicorn's HTTP protocol, with bounds on what a client may send before it is a request, and with
connections that a draining server can close without losing a request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from flatwake_service.http.errors import ApiError, Code

ARRIVAL = "flatwake.arrival"
"""Key in a request's scope: when it came, CLOCK_MONOTONIC seconds. Its body, its place in a
pipeline and the event loop's turn come later, and a client waits for all of them.
"""
_LAST_DATA_RECEIVED = struct.Struct("52xI")
"""`tcpi_last_data_recv` in linux/tcp.h's tcp_info: milliseconds."""

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 60.0
"""How long a request's head may take from its first byte; and a new connection to begin one."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _head_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The request's head exceeds {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head = True
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[ARRIVAL] = time.monotonic() - self._unread()

    def _unread(self) -> float:
        """Seconds that what is being read has waited in the kernel: a server that is late for its
        own sockets makes clients wait, too. In ticks of the kernel's clock, so right on average.
        """
        connection = self.transport.get_extra_info("socket")
        try:
            info = connection.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size
            )
            return float(_LAST_DATA_RECEIVED.unpack(info)[0]) / 1000
        except (OSError, struct.error):
            return 0.0  # a kernel that doesn't tell

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        body = ApiError(Code.INVALID_HTTP, msg).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def leave(self) -> None:
        """From now on this connection closes with its present answer, if it has one."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            cycle.transport = cast("asyncio.Transport", _Parting(self.transport, self.loop))


class _Parting:
    """What a cycle whose connection shall close writes to.

    An answer that began before the drain couldn't announce that the connection closes. So its last
    bytes and the FIN have to travel together: a client that looks before it sends another request
    can't miss the end then. That bytes are the last is known when `close` follows in the same turn
    of the loop, hence a write waits for the turn's end; and the kernel holds what it is given
    while the socket is corked, until it is closed.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        if self.is_closing():
            return
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held and not self.is_closing():
            self._transport.write(b"".join(self._held))
        self._held.clear()
