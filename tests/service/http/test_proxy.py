"""Behind nginx, set as docs/operations.md tells users of an Ingress: streams flow and none is cut.

In the tests about silence a minute lasts a second: nginx's timeouts, the pings and the silence
itself are all a sixtieth of what is documented.
"""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import proxy
import pytest
import yaml
from fake_engine import FakeEngine
from flatwake_service.manifest import defaults, quantity
from served import Served

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
MINUTE_S = 1.0
SECOND_S = MINUTE_S / 60
PINGS_S = 15 * SECOND_S
TOKENS = 8
REQUEST = {
    "messages": [{"role": "user", "content": "say a word."}],
    "stream": True,
    "max_tokens": TOKENS,
    "ignore_eos": True,
}
CUT = "cut"
NO_SETTINGS: list[str] = []


def documented(second: float = 1.0) -> list[str]:
    """The Ingress of the page, as nginx's settings."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = [thing for block in blocks for thing in yaml.safe_load_all(block)]
    (ingress,) = [thing for thing in shown if thing["kind"] == "Ingress"]
    return proxy.directives(ingress["metadata"]["annotations"], second)


def by_default(second: float) -> list[str]:
    """What nginx and ingress-nginx do on their own about time."""
    own = {f"{proxy.PREFIX}proxy-{way}-timeout": "60" for way in ("read", "send")}
    return proxy.directives(own, second)


class Listener:
    """A client that notes what it hears, line by line, and whether the stream was cut."""

    def __init__(self, client: httpx.Client) -> None:
        self._heard: queue.Queue[str] = queue.Queue()
        self._client = client

    def listen(self) -> None:
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=REQUEST) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        self._heard.put(line.removeprefix("data: "))
        except httpx.RemoteProtocolError:
            self._heard.put(CUT)

    def hear(self, patience: float = proxy.PATIENCE) -> str:
        return self._heard.get(timeout=patience)

    def hear_text(self, patience: float = proxy.PATIENCE) -> str:
        """The next piece of the answer."""
        while True:
            event: dict[str, Any] = json.loads(self.hear(patience))
            if text := event["choices"][0]["delta"].get("content"):
                return str(text)

    def hear_end(self) -> str:
        """The last that is heard: that the answer is complete, or that it was cut."""
        while (heard := self.hear()) not in ("[DONE]", CUT):
            pass
        return heard


@contextmanager
def listening(
    folder: Path, settings: list[str], ping: float = 0
) -> Iterator[tuple[Served, Listener]]:
    """A request that waits in an engine that is held, and a client that listens for its answer."""
    with (
        Served(FakeEngine, ping=ping) as served,
        proxy.before(served.url, folder, settings) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        served.call(served.engine.hold)
        listener = Listener(client)
        heard = pool.submit(listener.listen)
        served.wait(lambda: served.engine.open == 1, "the request has arrived")
        try:
            yield served, listener
        finally:
            served.call(served.engine.release)
            heard.result(proxy.PATIENCE)


@pytest.mark.parametrize("settings", [documented(), NO_SETTINGS], ids=["documented", "none"])
def test_a_token_reaches_the_client_before_the_next_is_made(
    tmp_path: Path, settings: list[str]
) -> None:
    """Without any setting too, as the server asks nginx not to gather."""
    with listening(tmp_path, settings) as (served, listener):
        for _ in range(TOKENS):
            served.call(served.engine.step)
            assert listener.hear_text()


def test_a_proxy_that_gathers_would_be_noticed(tmp_path: Path) -> None:
    gathering = ["proxy_buffering on;", "proxy_ignore_headers X-Accel-Buffering;"]
    with listening(tmp_path, gathering) as (served, listener):
        served.call(served.engine.step)
        with pytest.raises(queue.Empty):
            listener.hear_text(patience=1)


@pytest.mark.parametrize(
    ("settings", "ping", "minutes", "end"),
    [
        pytest.param(documented(SECOND_S), 0, 10, "[DONE]", id="documented-without-pings"),
        pytest.param(by_default(SECOND_S), PINGS_S, 3, "[DONE]", id="pings-alone"),
        pytest.param(by_default(SECOND_S), 0, 3, CUT, id="neither"),
    ],
)
def test_a_silent_stream_is_kept_by_the_settings_or_by_pings(
    tmp_path: Path, settings: list[str], ping: float, minutes: int, end: str
) -> None:
    with listening(tmp_path, settings, ping) as (served, listener):
        served.call(served.engine.step)
        assert listener.hear_text()
        threading.Event().wait(minutes * MINUTE_S)  # the silence itself
        served.call(served.engine.release)
        assert listener.hear_end() == end


def test_the_server_and_not_the_proxy_judges_a_body(tmp_path: Path) -> None:
    text = "a" * (int(quantity(defaults.BODY_BYTES)) - 1000)
    body = {"messages": [{"role": "user", "content": text}]}
    with Served() as served:
        for name, settings, status in (("with", documented(), 400), ("without", NO_SETTINGS, 413)):
            folder = tmp_path / name
            folder.mkdir()
            with proxy.before(served.url, folder, settings) as client:
                answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == status
            told = answer.headers["content-type"].startswith("application/json")
            assert told == (name == "with"), answer.text[:200]
