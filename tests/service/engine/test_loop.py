"""The engine's loop in this process, over a socket pair; the device decides when it is over."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from engine_child import submit_message
from fake_runner import FakeRunner
from flatwake_service.engine import messages
from flatwake_service.engine.batch import Batch
from flatwake_service.engine.channel import Channel, Disconnected
from flatwake_service.engine.loop import Loop
from flatwake_service.engine.messages import (
    Cancel,
    Down,
    Drain,
    Frames,
    Shutdown,
    Stats,
    Tokens,
    Up,
)
from flatwake_service.engine.scheduler import Scheduler


class Peer:
    """The API process's end."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._frames = Frames()

    def send(self, *sent: Down) -> None:
        self._end.sendall(b"".join(map(messages.encode, sent)))

    def received(self) -> list[Up]:
        found: list[Up] = []
        while True:
            try:
                data = self._end.recv(1 << 16)
            except BlockingIOError:
                return found
            if not data:
                return found
            found += map(messages.decode_up, self._frames.feed(data))

    def close(self) -> None:
        self._end.close()


def serve(act: Callable[[Peer, Batch], None], *first: Down) -> tuple[Peer, Scheduler]:
    """Run a loop whose device calls `act` before each part of a step."""
    near, far = socket.socketpair()
    peer, channel = Peer(near), Channel(far)
    runner = FakeRunner(context=300, blocks=60, slots=4, pace=lambda batch: act(peer, batch))
    scheduler = Scheduler(blocks=60, slots=4, context=300, max_sequences=4, prefill_tokens=64)
    peer.send(*first)
    try:
        Loop(channel, scheduler, runner, checked=True).run()
    finally:
        channel.close()
    return peer, scheduler


def tokens(found: list[Up]) -> list[Tokens]:
    return [message for message in found if isinstance(message, Tokens)]


def test_a_steps_decoded_tokens_leave_before_its_chunks_run() -> None:
    seen: list[list[int]] = []

    def act(peer: Peer, batch: Batch) -> None:
        if batch.step == 2:
            seen.append([entry.sequence for t in tokens(peer.received()) for entry in t.entries])
        if batch.step == 3:
            peer.send(Shutdown())

    short, long = submit_message(1, [5] * 10), submit_message(2, [6] * 250)
    peer, _ = serve(act, short, long)
    # Before its decode rows: the first step's token; before its chunk: its own decoded token.
    assert seen == [[1], [1]]
    peer.close()


def test_started_is_told_once_with_the_first_chunk() -> None:
    def act(peer: Peer, batch: Batch) -> None:
        if batch.step == 6:
            peer.send(Shutdown())

    peer, _ = serve(act, submit_message(1, [6] * 250, max_tokens=3))
    frames = tokens(peer.received())
    assert (frames[0].step, frames[0].started) == (1, (1,))
    assert [n for frame in frames for n in frame.started] == [1]
    assert frames[0].entries == ()
    peer.close()


def test_a_cancelled_sequence_is_gone_before_the_next_step() -> None:
    rows: list[list[int]] = []

    def act(peer: Peer, batch: Batch) -> None:
        entries = (*batch.decode, *batch.chunks)
        rows.append([entry.sequence.number for entry in entries])
        if batch.step == 2:
            peer.send(Cancel(2))
        if batch.step == 4:
            peer.send(Shutdown())

    peer, scheduler = serve(act, submit_message(1, [5] * 10), submit_message(2, [6] * 250))
    assert 2 in rows[1]
    assert all(2 not in row for row in rows[3:])
    assert scheduler.running == 1
    peer.close()


def test_on_becoming_idle_the_values_are_told_once_and_drain_changes_nothing() -> None:
    near, far = socket.socketpair()
    peer, channel = Peer(near), Channel(far)
    runner = FakeRunner(context=300, blocks=60, slots=4)
    scheduler = Scheduler(blocks=60, slots=4, context=300, max_sequences=4, prefill_tokens=64)
    loop = Loop(channel, scheduler, runner, checked=True)
    peer.send(submit_message(1, [5] * 10, max_tokens=3), Drain())
    while loop._take_messages() and not loop._idle:
        loop._expire()
        batch = scheduler.schedule()
        if batch.empty:
            loop._rest()
        else:
            loop._step(batch)
    found = peer.received()
    stats = [message for message in found if isinstance(message, Stats)]
    assert isinstance(found[-1], Stats)
    assert stats[-1].reported_tokens == 3
    assert stats[-1].sequences_running == stats[-1].blocks_used == 0
    assert stats[-1].kv_touched_bytes > 0
    loop._rest()
    assert peer.received() == []
    peer.close()
    channel.close()


def test_an_api_process_that_is_gone_ends_the_loop() -> None:
    def act(peer: Peer, batch: Batch) -> None:
        if batch.step == 3:
            peer.close()

    with pytest.raises(Disconnected):
        serve(act, submit_message(1, [5] * 10))
