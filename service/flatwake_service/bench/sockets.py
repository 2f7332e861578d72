"""A streaming client that costs next to nothing, so that a benchmark measures the server."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

EVENT = b"data: {"
DONE = b"data: [DONE]"
STAMP = b": stamp "
_END = b"\n\n"


@dataclass
class Stream:
    """When its events came, CLOCK_MONOTONIC seconds, and for each one that the server stamped how
    many seconds after the engine had read its token.
    """

    connection: socket.socket
    times: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    complete: bool = False
    _rest: bytes = b""

    def read(self) -> bool:
        """Takes what has arrived; whether the stream goes on."""
        data = self.connection.recv(1 << 16)
        now = time.monotonic()
        # An event may be cut in two by a read.
        *blocks, self._rest = (self._rest + data).split(_END)
        for block in blocks:
            if EVENT in block:
                self.times.append(now)
            elif (at := block.find(STAMP)) >= 0:
                self.delays.append(now - float(block[at + len(STAMP) :]))
            elif DONE in block:
                self.complete = True
        return bool(data) and not self.complete


def complete(
    url: str,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    fields: Mapping[str, object] = MappingProxyType({}),
) -> tuple[list[Stream], float]:
    """Streams a greedy completion of each prompt, all at once, to its end; and when all were sent.

    `fields` are added to each body.

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
            **fields,
        }
        connection = socket.create_connection((parts.hostname or "", parts.port or 80))
        streams.append(Stream(connection))
        selector.register(
            connection, selectors.EVENT_READ, (streams[-1], _request(parts.path, body))
        )
    began = time.monotonic()
    for key in list(selector.get_map().values()):
        key.data[0].connection.sendall(key.data[1])
    while selector.get_map():
        for key, _ in selector.select():
            if not key.data[0].read():
                selector.unregister(key.fileobj)
    for stream in streams:
        stream.connection.close()
        if not stream.complete:
            raise ConnectionError("the server ended a stream before it was complete")
    return streams, began


def _request(path: str, body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path}/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
