"""`flatwake chat`: one question, and a conversation in a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest
from command import FLATWAKE
from fake_engine import FakeEngine
from flatwake_service.cli import main as cli
from flatwake_service.cli.chat import ChatError, Conversation
from served import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(lambda: FakeEngine(pace=0.005, context=4096, reply=b"many " * 600)) as server:
        yield server


@pytest.fixture
def conversation(served: Served) -> Iterator[Conversation]:
    with httpx.Client(base_url=f"{served.url}/v1") as client:
        yield Conversation(client, {}, "be kind")


def test_one_question(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["chat", "--url", f"{served.url}/v1", "say hello there."])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "hello there\n"


def test_a_conversation_remembers(served: Served, conversation: Conversation) -> None:
    assert "".join(conversation.ask("say one.")) == "one"
    assert "".join(conversation.ask("say two.")) == "two"
    prompt = bytes(served.call(lambda: served.engine.submitted[-1].ids)).decode()
    assert prompt == ("[system]be kind[user]say one.[assistant]one[user]say two.[assistant]")


def test_a_stopped_answer_is_part_of_it(served: Served, conversation: Conversation) -> None:
    answer = conversation.ask("say a long answer.")
    begun = next(answer)
    answer.close()
    assert conversation.messages[-1] == {"role": "assistant", "content": begun}
    served.assert_idle()


def test_a_refusal_is_said_and_forgotten(conversation: Conversation) -> None:
    with pytest.raises(ChatError, match="maximum context length is 4096"):
        list(conversation.ask("a" * 5000))
    assert conversation.messages == []


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["chat", "--url", "http://127.0.0.1:9/v1", "hello"])
    assert ended.value.code == 1
    assert "no server answers at http://127.0.0.1:9/v1" in capsys.readouterr().err


class Terminal:
    """A pseudo terminal with `flatwake chat` in it."""

    def __init__(self, url: str, home: str) -> None:
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            changed = {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "XDG_STATE_HOME": home}
            os.execve(FLATWAKE, ["flatwake", "chat", "--url", url], {**os.environ, **changed})
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait_for(self, pattern: str) -> None:
        end = time.monotonic() + 60
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, f"never saw {pattern!r} in {self.seen!r}"
            if select.select([self._end], [], [], 1.0)[0]:
                self.seen += os.read(self._end, 65536).decode(errors="replace")
        self.seen = self.seen[re.search(pattern, self.seen).end() :]  # type: ignore[union-attr]

    def ended(self) -> int:
        while True:
            try:
                if not os.read(self._end, 65536):
                    break
            except OSError:
                break
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def test_in_a_terminal_ctrl_c_stops_the_answer_and_not_the_program(
    served: Served, tmp_path: object
) -> None:
    terminal = Terminal(f"{served.url}/v1", str(tmp_path))
    terminal.wait_for("fake")
    terminal.wait_for(">")
    terminal.type("say **bold** words.\r")
    terminal.wait_for("\x1b\\[1mbold")
    terminal.type("go on\r")
    terminal.wait_for("many many many")
    terminal.type("\x03")
    terminal.wait_for("stopped")
    served.assert_idle()
    terminal.type("/clear\r")
    terminal.wait_for("a new conversation")
    terminal.type("say again.\r")
    terminal.wait_for("again")
    terminal.type("/exit\r")
    assert terminal.ended() == 0


def test_the_key_and_the_url_come_from_the_environment(served: Served) -> None:
    environment = {**os.environ, "OPENAI_BASE_URL": f"{served.url}/v1", "OPENAI_API_KEY": "x"}
    done = subprocess.run(
        [FLATWAKE, "chat", "say hi."], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "hi\n"
