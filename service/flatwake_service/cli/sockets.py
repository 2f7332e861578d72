"""A streaming client that costs next to nothing, so that a benchmark measures the server."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

EVENT = b"data: {"
DONE = b"data: [DONE]"


@dataclass
class Stream:
    """When its events came: seconds since all requests were sent."""

    connection: socket.socket
    times: list[float] = field(default_factory=list)
    complete: bool = False
    _tail: bytes = b""

    def read(self, now: float) -> bool:
        """Takes what has arrived; whether the stream goes on."""
        data = self.connection.recv(1 << 16)
        # An event's mark may be cut in two by a read.
        text = self._tail + data
        count = text.count(EVENT)
        self.times += [now] * count
        self.complete = self.complete or DONE in text
        last = text.rfind(EVENT)
        counted = last + len(EVENT) if last >= 0 else 0
        self._tail = text[max(counted, len(text) - len(DONE)) :]
        return bool(data) and not self.complete


def complete(url: str, prompts: Sequence[Sequence[int]], tokens: int) -> list[Stream]:
    """Streams a greedy completion of each prompt, all at once, to its end.

    Raises:
        ConnectionError: a stream ended without being complete.
    """
    parts = urlsplit(url)
    streams, selector = [], selectors.DefaultSelector()
    for prompt in prompts:
        body = {
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        connection = socket.create_connection((parts.hostname or "", parts.port or 80))
        streams.append(Stream(connection))
        selector.register(
            connection, selectors.EVENT_READ, (streams[-1], _request(parts.path, body))
        )
    began = time.perf_counter()
    for key in list(selector.get_map().values()):
        key.data[0].connection.sendall(key.data[1])
    while selector.get_map():
        for key, _ in selector.select():
            if not key.data[0].read(time.perf_counter() - began):
                selector.unregister(key.fileobj)
    for stream in streams:
        stream.connection.close()
        if not stream.complete:
            raise ConnectionError("the server ended a stream before it was complete")
    return streams


def _request(path: str, body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path}/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
