"""Several processes fetch at once, and any of them may die at any step."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fetch_child
import pytest
from fetched_file import DATA, DIGEST
from file_server import FileServer
from flatwake_service.errors import (
    FetchError,
    NoProgress,
)
from flatwake_service.manifest.sources import parse_source
from flatwake_service.weights import cache as cache_module
from flatwake_service.weights.fetch import Fetched, fetch


def test_two_that_fetch_at_once_share_one_download(
    server: FileServer, source: str, cache: Path
) -> None:
    half, go = threading.Event(), threading.Event()

    def pause(path: str, sent: int) -> None:
        if sent >= len(DATA) // 2:
            half.set()
            assert go.wait(30)

    server.on_sent = pause
    results: list[Fetched] = []
    watched: list[int] = []

    def bring(progress: Callable[[int, int | None], None] | None = None) -> None:
        results.append(fetch(source, digest=DIGEST, cache=cache, progress=progress))

    def watch(done: int, total: int | None) -> None:
        watched.append(done)
        if done:  # the second one waits, and sees what the first has brought
            go.set()

    first = threading.Thread(target=bring)
    first.start()
    assert half.wait(30)
    second = threading.Thread(target=bring, args=(watch,))
    second.start()
    first.join()
    second.join()
    assert results[0] == results[1]
    assert len(server.seen) == 1
    assert watched[-1] > 0


def test_waiting_for_a_process_that_stands_still_ends(source: str, cache: Path) -> None:
    place = cache_module.Place(cache, parse_source(source))
    with (
        place.locked(1, lambda done: None),
        pytest.raises(NoProgress, match="another process holds"),
    ):
        fetch(source, digest=DIGEST, cache=cache, stall_timeout=0.2)


def test_killed_at_any_byte_the_next_one_goes_on(
    server: FileServer, source: str, cache: Path
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    server.block = 4096
    partial = cache_module.Place(cache, parse_source(source)).files / "m.gguf"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["flatwake_service.weights.fetch"])
    deaths = 6
    for _ in range(deaths):
        child = context.Process(target=fetch_child.run, args=(source, DIGEST, str(cache)))
        begin = partial.stat().st_size if partial.exists() else 0
        at = rng.randrange(1, len(DATA) // deaths)

        def kill(
            path: str, sent: int, begin: int = begin, at: int = at, child: Any = child
        ) -> None:
            landed = begin + sent - 20_000
            wait_until(lambda: partial.exists() and partial.stat().st_size > landed)
            if sent >= at:
                os.kill(child.pid, signal.SIGKILL)
                raise ConnectionAbortedError

        server.on_sent = kill
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert not (cache / parse_source(source).key).exists(), "nothing half is ever in place"
    server.on_sent = lambda path, sent: None
    assert fetch(source, digest=DIGEST, cache=cache).path.read_bytes() == DATA
    begun = [int((r.headers["Range"] or "bytes=0-")[6:-1]) for r in server.seen]
    assert begun == sorted(begun)
    assert begun[-1] > 0, "it went on from where it was"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        tick.wait(0.001)


def test_a_failure_at_any_step_leaves_the_cache_as_it_was_or_as_it_should_be(
    source: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail operation 1, then 2, then 3, until the run ends without reaching the fault."""
    path = Path(parse_source(source).location(str(cache)))
    for fail_at in range(1, 200):
        with monkeypatch.context() as patch:
            breaker = Breaker(patch, fail_at)
            with suppress(FetchError):
                fetch(source, digest=DIGEST, cache=cache)
        if path.exists():
            assert path.read_bytes() == DATA
        assert fetch(source, digest=DIGEST, cache=cache).path.read_bytes() == DATA
        shutil.rmtree(path.parent)
        if breaker.count < fail_at:
            break
    assert 10 < fail_at < 199


class Breaker:
    """Has the n-th operation on files fail."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: int) -> None:
        self.count = 0
        self.fail_at = fail_at
        for name in ("mkdir", "open", "rename", "replace", "unlink", "write_text"):
            patch.setattr(Path, name, self.wrap(getattr(Path, name)))
        patch.setattr(shutil, "rmtree", self.wrap(shutil.rmtree))
        patch.setattr(os, "fsync", self.wrap(os.fsync))

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.fail_at:
                raise OSError(5, "broken on purpose")
            return real(*args, **kwargs)

        return wrapped
