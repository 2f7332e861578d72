"""A streaming chat client that measures what a user would see.

Plain `http.client`, so that locust's gevent makes it cooperative and a thread can use it as well.
The clock is read when bytes have been read, before they are parsed; it is CLOCK_MONOTONIC in
seconds, the same for all processes of a machine.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

from . import arrivals
from .answer import Answer, Json

_RECEIVE = 65536
_TRACE = b": stamp "
_NO_ANSWER = (OSError, http.client.HTTPException)


class Client:
    """One user's connection; it is kept open between requests, as SDKs do."""

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 600.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no http:// or https:// address")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._connection: http.client.HTTPConnection | None = None
        self._sent = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """A plain GET; raises OSError or HTTPException when nothing answers."""
        with self._send("GET", path, None) as response:
            return response.status, response.read()

    def post(self, path: str, body: Json | bytes) -> tuple[int, bytes]:
        with self._send("POST", path, _encode(body)) as response:
            return response.status, response.read()

    def chat(
        self,
        body: Json | bytes,
        *,
        abort_after: int | None = None,
        stall: float = 0.0,
        on_event: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Streams one chat completion to its end.

        With `abort_after` the connection is closed after that many events (0: as soon as the
        request is sent); `stall` seconds are spent without reading after the first event;
        `on_event` is called at each event with text.
        """
        data = _encode(body)
        answer = Answer(sent=time.monotonic())
        try:
            if abort_after == 0:
                self._request("POST", "/v1/chat/completions", data)
                answer.outcome = "cancelled"
            else:
                # Leaving the block closes the stream: a socket lives as long as its response.
                with self._send("POST", "/v1/chat/completions", data) as response:
                    answer.sent, answer.status = self._sent, response.status
                    _read(response, answer, abort_after, stall, on_event)
        except _NO_ANSWER as error:
            answer.error = f"{type(error).__name__}: {error}"
            answer.outcome = "broken" if answer.status else "unreachable"
        answer.seconds = time.monotonic() - answer.sent
        if answer.outcome in ("cancelled", "broken", "unreachable"):
            self.close()
        return answer

    def _send(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        """Sends on the kept connection; once more on a new one if the old one had been closed."""
        kept = self._connection is not None
        try:
            return self._request(method, path, body).getresponse()
        except (ConnectionError, http.client.BadStatusLine, http.client.CannotSendRequest):
            self.close()
            if not kept:
                raise
            return self._request(method, path, body).getresponse()

    def _request(self, method: str, path: str, body: bytes | None) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._connect()
        self._sent = time.monotonic()
        self._connection.request(method, self._prefix + path, body=body, headers=self._headers)
        return self._connection

    def _connect(self) -> http.client.HTTPConnection:
        """An open connection: its making is no part of any request's time."""
        host, port, timeout = self._host, self._port, self._timeout
        connection: http.client.HTTPConnection
        if self._secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
            connection.connect()
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
            connection.response_class = _Response
            connection.connect()
            arrivals.stamp(connection.sock)
        return connection


class _Response(http.client.HTTPResponse):
    """One that knows when its bytes came."""

    def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.arrivals = arrivals.Arrivals(sock, self.fp.detach())
        self.fp = io.BufferedReader(self.arrivals)


def _read(
    response: http.client.HTTPResponse,
    answer: Answer,
    abort_after: int | None,
    stall: float,
    on_event: Callable[[], None],
) -> None:
    if response.status != 200:
        _refused(answer, response, response.read())
        return
    answer.outcome = "broken"
    finish = first = None
    for stamp, wait, read, data in _events(response):
        if data == b"[DONE]":
            # Read to the very end: only then can the connection be used again.
            response.read()
            answer.outcome = finish or "error"
            return
        event = json.loads(data)
        if "error" in event:
            _failed(answer, event["error"])
            return
        before = len(answer.stamps)
        finish = _take(event, stamp - answer.sent, answer) or finish
        if len(answer.stamps) > before:
            first = first or wait
            answer.waited(wait, first)
            if read is not None:
                answer.delays.append(stamp - read)
            on_event()
        if abort_after is not None and len(answer.stamps) >= abort_after:
            answer.outcome = "cancelled"
            return
        if stall and len(answer.stamps) == 1:
            time.sleep(stall)
            stall = 0.0


def _encode(body: Json | bytes) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _events(
    response: http.client.HTTPResponse,
) -> Iterator[tuple[float, arrivals.Wait | None, float | None, bytes]]:
    """(moment, its wait until then, when the engine read its token, data) of each event.

    A server that traces puts the third one into a comment before the event; it and the first are
    moments of CLOCK_MONOTONIC, so they can be compared on one machine only.
    """
    rest, read = b"", None
    came = response.arrivals if isinstance(response, _Response) else None
    while True:
        received = response.read1(_RECEIVE)
        stamp = time.monotonic()
        wait = came.wait(stamp) if came is not None else None
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield stamp, wait, read, line[5:].strip()
                read = None
            elif line.startswith(_TRACE):
                read = float(line[len(_TRACE) :])


def _take(event: Json, stamp: float, answer: Answer) -> str | None:
    """Adds one event to the answer; the finish reason if it holds one."""
    usage = event.get("usage")
    if usage:
        answer.usage_prompt = usage.get("prompt_tokens")
        answer.usage_completion = usage.get("completion_tokens")
    finish = None
    for choice in event.get("choices") or []:
        finish = choice.get("finish_reason") or finish
        delta = choice.get("delta") or {}
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
        logprobs = (choice.get("logprobs") or {}).get("content")
        if logprobs:
            answer.exact = True
            answer.tokens += len(logprobs)
        if text:
            answer.stamps.append(stamp)
            answer.text += text
            answer.tokens += 0 if logprobs or answer.exact else 1
    return finish


def _failed(answer: Answer, error: Json) -> None:
    """An error event: a wait that was too long is told from a fault by its code."""
    answer.outcome = "timeout" if "timeout" in str(error.get("code")) else "error"
    answer.error = str(error.get("message", error))


def _refused(answer: Answer, response: http.client.HTTPResponse, body: bytes) -> None:
    answer.outcome = {429: "rejected", 503: "timeout"}.get(response.status, "error")
    answer.retry_after = response.headers.get("Retry-After")
    try:
        answer.error = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        answer.error = body[:200].decode(errors="replace")
