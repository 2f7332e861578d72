"""Users who stream all the time from inside a cluster, with kept connections and no retries."""

from __future__ import annotations

import http.client
import itertools
import select
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from flatwake_loadtest.answer import Answer, Json
from flatwake_loadtest.stream import Client

from testcluster.layout import Cluster
from testcluster.network import enter


class StrictClient(Client):
    """One that never asks twice. Before it asks on a kept connection it looks whether that was
    closed, as the pools of urllib3, httpx and Go do: closed by then, it takes a new one; closed
    later, the request has failed.
    """

    def _send(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        if self._connection is not None and _readable(self._connection):
            self.close()
        return self._request(method, path, body).getresponse()


def _readable(connection: http.client.HTTPConnection) -> bool:
    """A connection between two requests has nothing to say but its end."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


@dataclass
class Users:
    """What all users have seen so far; times are time.monotonic()'s."""

    count: int
    answers: list[Answer] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)
    _heard: threading.Condition = field(default_factory=threading.Condition)

    def run(self, user: int, url: str, tokens: int) -> None:
        """One user: request after request until told to stop; the last one is heard to its end."""
        with StrictClient(url, timeout=300) as client:
            for turn in itertools.count():
                answer = client.chat(
                    _question(user, turn, tokens), on_event=lambda: self._hear(user)
                )
                with self._heard:
                    answer.user = user
                    self.answers.append(answer)
                if self.stopped.is_set():
                    return

    def _hear(self, user: int) -> None:
        if user in self.waiting:
            with self._heard:
                self.waiting.discard(user)
                self._heard.notify_all()

    def all_hear(self, timeout_s: float) -> None:
        """Wait until each of them has heard something from now on."""
        with self._heard:
            self.waiting = set(range(self.count))
            heard = self._heard.wait_for(lambda: not self.waiting, timeout_s)
        assert heard, f"users {sorted(self.waiting)} hear nothing for {timeout_s} s: {self.answers}"

    def spanning(self, moment: float) -> list[Answer]:
        """Streams that were under way at a moment."""
        return [each for each in self.answers if each.sent < moment < each.sent + each.seconds]

    def failures(self) -> list[str]:
        """Whatever wasn't a whole answer, in words."""
        return [
            f"user {each.user}: {each.outcome} {each.status} after {each.seconds:.1f} s, "
            f"{len(each.stamps)} events: {each.error}"
            for each in self.answers
            if not each.complete
        ]


def _question(user: int, turn: int, tokens: int) -> Json:
    text = f"Question {turn} of user {user}: tell a long story."
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "temperature": 0,
    }


@contextmanager
def streaming(cluster: Cluster, url: str, *, count: int, tokens: int) -> Iterator[Users]:
    """Users for the length of a block; after it each has heard its last answer to the end."""
    users = Users(count)
    with ThreadPoolExecutor(count, "user", initializer=enter, initargs=(cluster,)) as pool:
        running = [pool.submit(users.run, user, url, tokens) for user in range(count)]
        try:
            yield users
        finally:
            users.stopped.set()
            for each in running:
                each.result()
