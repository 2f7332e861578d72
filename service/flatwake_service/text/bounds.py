"""How long a template may run and how large its values may grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any, Final

import jinja2
from jinja2.exceptions import SecurityError

MAX_CHARACTERS: Final = 16 << 20
MAX_ITEMS: Final = 1 << 20
MAX_SECONDS: Final = 1.0
"""Processor time of the rendering thread, so that a busy machine refuses nothing."""


class _Budget(threading.local):
    seconds = 0.0
    deadline = 0.0
    ticks = 0


_budget = _Budget()


@contextmanager
def budget(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Start the clock of a rendering in this thread."""
    _budget.seconds, _budget.ticks = seconds, 0
    _budget.deadline = time.thread_time() + seconds
    yield


def check_size(value: Any) -> Any:
    """The value itself, unless its text would be too large."""
    if isinstance(value, str):
        check(len(value))
    elif isinstance(value, list | tuple | Mapping):
        _weigh(value)
    elif isinstance(value, int):
        check(value.bit_length())
    return value


def _weigh(value: Any) -> None:
    """Refuse containers that would spell out too long; shared parts count each time.

    Shared parts are walked once, so that this is quick for what would be endless to write out.
    """
    known: dict[int, int] = {}

    def weight(item: Any) -> int:
        if isinstance(item, str):
            return 1 + len(item)
        tick()
        if not isinstance(item, list | tuple | Mapping):
            return 1
        if id(item) not in known:
            known[id(item)] = 0
            parts = (*item, *item.values()) if isinstance(item, Mapping) else item
            known[id(item)] = 1 + sum(weight(part) for part in parts)
            check(known[id(item)])
        return known[id(item)]

    weight(value)


def check(size: int, limit: int = MAX_CHARACTERS) -> None:
    """Refuse a size. Raises SecurityError."""
    if size > limit:
        raise SecurityError(f"the template makes something larger than {limit} characters or items")


def tick() -> None:
    """Look at the clock now and then. Raises SecurityError when the time is up."""
    _budget.ticks += 1
    if _budget.ticks % 64 == 0 and time.thread_time() > _budget.deadline:
        raise SecurityError(
            f"the template takes longer than {_budget.seconds:g} s of processor time"
        )


class _Watched(Iterable[Any]):
    """What a loop runs over, with a look at the clock for each item."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            tick()
            yield item


class _WatchedSized(_Watched):
    def __len__(self) -> int:
        assert isinstance(self._items, Sized)
        return len(self._items)


def watched(items: Any) -> Any:
    """What a loop runs over, so that each item ticks."""
    if isinstance(items, jinja2.Undefined) or not isinstance(items, Iterable):
        return items  # Jinja's own error is the right one
    return _WatchedSized(items) if isinstance(items, Sized) else _Watched(items)
