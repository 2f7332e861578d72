"""A request leaves nothing to the garbage collector: memory is flat without its help."""

from __future__ import annotations

import gc

import pytest
from flatwake_service.http.choice import Choice
from flatwake_service.http.exchange import Exchange
from flatwake_service.http.generation import Generation
from flatwake_service.http.stream import EventStream
from served import Served
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

OURS = (Choice, EventStream, Exchange, Generation, RequestResponseCycle)


@pytest.mark.parametrize("stream", [True, False])
def test_no_ring_of_objects_is_left(stream: bool) -> None:
    with Served() as served:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                assert served.chat("hello", stream=stream, max_tokens=4).status_code == 200
            served.assert_idle()
            served.wait(lambda: not left(), "all are gone")
        finally:
            gc.enable()


def left() -> list[str]:
    return [type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, OURS)]
