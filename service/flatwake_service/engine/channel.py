"""The engine's end of the socket: plain and blocking."""

from __future__ import annotations

import select
import socket

from flatwake_service.engine import messages
from flatwake_service.engine.messages import Down, Frames, Up

_RECEIVE_BYTES = 1 << 18
_SEND_BUFFER_BYTES = 1 << 20
_REST_MS = 2
"""How long to wait for the rest of a message of which a part is there."""


class Disconnected(Exception):
    """The API process is gone."""


class Channel:
    """Messages from and to the API process.

    `send` blocks while the socket's buffer is full: a megabyte of tokens that nobody reads.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket = connected
        self._frames = Frames()
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)

    @classmethod
    def connect(cls, path: str) -> Channel:
        """
        Raises:
            Disconnected: nobody listens there.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(path)
        except OSError as error:
            connected.close()
            raise Disconnected(f"{path}: {error.strerror}") from error
        return cls(connected)

    def receive(self, timeout: float) -> list[Down]:
        """All that has come, after waiting up to `timeout` seconds for the first; often nothing.

        All of it, since a cancellation may stand behind long prompts.

        Raises:
            Disconnected: the other end was closed.
        """
        if timeout > 0 and not self._poll.poll(timeout * 1000):
            return []
        received: list[Down] = []
        while True:
            data = self._receive()
            if data is not None:
                received += map(messages.decode_down, self._frames.feed(data))
            elif not self._frames.partial or not self._poll.poll(_REST_MS):
                return received

    def _receive(self) -> bytes | None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not data:
            raise Disconnected("the API process closed the socket")
        return data

    def send(self, message: Up) -> None:
        """
        Raises:
            Disconnected: the other end was closed.
        """
        try:
            self._socket.sendall(messages.encode(message))
        except OSError as error:
            raise Disconnected(str(error)) from error

    def close(self) -> None:
        self._socket.close()
