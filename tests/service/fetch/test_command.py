"""`flatwake fetch`: what it prints, how it ends, what it leaves for Kubernetes."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import httpx
import pytest
from file_server import Fault, FileServer
from flatwake_service import errors
from flatwake_service.cli import fetch as command
from flatwake_service.cli.preflight import FoundDevice
from flatwake_service.manifest import Phase, Reason, ServerStatus
from flatwake_service.manifest.sources import parse_source
from typer.testing import CliRunner, Result

DATA = b"weights" * 1000
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def source(server: FileServer) -> str:
    server.files["/m.gguf"] = DATA
    return f"{server.url}/m.gguf"


@pytest.fixture(autouse=True)
def termination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(command, "TERMINATION_LOG", path)
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    return Run(tmp_path / "cache")


class Run:
    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(command.app, [*arguments, "--cache", str(self.cache)])


def test_path_and_digest_are_printed(source: str, run: Run) -> None:
    result = run(source, "--digest", DIGEST)
    path = parse_source(source).location(str(run.cache))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"path     {path}\ndigest   {DIGEST}\nbytes    {len(DATA)}\n"
    values = json.loads(run(source, "--digest", DIGEST, "--json").stdout)
    assert values == {"path": path, "digest": DIGEST, "revision": "", "bytes": len(DATA)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["ftp://x/y"],
        ["http://host/file"],
        ["https://host/file", "--digest", "abc"],
        ["https://host/file", "--stall-timeout", "ten minutes"],
        ["https://host/file", "--stall-timeout", "0s"],
        ["https://host/file", "--no-such-option"],
        [],
    ],
    ids=str,
)
def test_bad_arguments_end_with_2(arguments: list[str], run: Run, termination: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr
    assert termination.read_text() == ""


def test_a_failure_ends_with_1_and_leaves_its_reason(
    server: FileServer, source: str, run: Run, termination: Path
) -> None:
    server.faults = [Fault(status=404)]
    result = run(source, "--digest", DIGEST)
    assert result.exit_code == 1
    assert f"flatwake fetch: {source}: HTTP 404" in result.stderr
    left = json.loads(termination.read_text())
    assert left["reason"] == "SourceNotFound"
    assert left["message"] in result.stderr


def test_without_a_termination_log_none_is_made(
    server: FileServer, source: str, run: Run, termination: Path
) -> None:
    termination.unlink()
    server.faults = [Fault(status=404)]
    assert run(source, "--digest", DIGEST).exit_code == 1
    assert not termination.exists()


def test_what_another_pod_has_resolved_is_taken_for_the_same_source_only(
    source: str, run: Run, tmp_path: Path
) -> None:
    pinned = tmp_path / "pinned"
    assert run(source, "--pinned-dir", str(pinned)).exit_code == 2, "http wants a digest"
    pinned.mkdir()
    (pinned / "digest").write_text(DIGEST)
    (pinned / "source").write_text("https://another/source")
    assert run(source, "--pinned-dir", str(pinned)).exit_code == 2
    (pinned / "source").write_text(source + "\n")
    assert DIGEST in run(source, "--pinned-dir", str(pinned)).stdout


def test_a_token_file_is_read_and_may_be_absent(
    server: FileServer, source: str, run: Run, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    assert run(source, "--digest", DIGEST, "--token-file", str(token)).exit_code == 0
    token.write_text("t0ken\n")
    server.files["/n.gguf"] = DATA
    run(f"{server.url}/n.gguf", "--digest", DIGEST, "--token-file", str(token))
    assert [r.headers["Authorization"] for r in server.seen] == [None, "Bearer t0ken"]


def test_status_tells_how_far_it_is_while_it_fetches(
    server: FileServer, source: str, run: Run
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers: list[httpx.Response] = []

    def ask(path: str, sent: int) -> None:
        if not answers and sent > 4000:
            answers.extend(
                httpx.get(f"http://127.0.0.1:{port}/{what}", trust_env=False)
                for what in ("status", "other")
            )

    server.block = 1000
    server.on_sent = ask
    result = run(source, "--digest", DIGEST, "--status-port", str(port))
    assert result.exit_code == 0, result.output
    status = ServerStatus.model_validate_json(answers[0].content)
    assert (status.phase, status.reason) == (Phase.FETCHING, Reason.FETCHING)
    assert (status.model.source, status.model.digest) == (source, DIGEST)
    assert status.model.bytes_done is not None
    assert status.model.bytes_done <= len(DATA)
    assert answers[1].status_code == 404
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/status", trust_env=False)


def test_a_status_port_in_use_is_named(source: str, run: Run, termination: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = run(source, "--digest", DIGEST, "--status-port", port)
    assert result.exit_code == 1
    assert f"all addresses port {port}: address already in use" in result.stderr
    assert "--status-port" in result.stderr
    assert json.loads(termination.read_text())["reason"] == "PortInUse"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: clock[0])
    say = command._Lines()
    for now, done in ((1.0, 10**6), (6.0, 2 * 10**6), (7.0, 3 * 10**6), (12.0, 4 * 10**6)):
        clock[0] = now
        say(done, 8 * 10**6 if now < 10 else None)
    assert capsys.readouterr().err == "fetching: 2 of 8 MB (25%)\nfetching: 4 MB\n"


def test_a_stop_by_the_user_says_that_nothing_is_lost(
    source: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatwake_service.weights import fetch as library

    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "fetch", interrupted)
    result = run(source)
    assert result.exit_code == 130
    assert "the next fetch goes on from here" in result.stderr


def test_every_reason_is_a_word_of_the_manifest() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type)]
    for kind in kinds:
        if issubclass(kind, errors.FlatwakeError):
            assert kind.reason in set(Reason), kind


def test_a_preflight_is_told_as_one_and_not_as_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    state, told = command._State("hf://org/repo"), []

    def look(architectures: object, min_memory: int) -> FoundDevice:
        told.append(state.status())
        return FoundDevice("a device", "gfx1100", 1 << 34)

    monkeypatch.setattr("flatwake_service.cli.preflight.preflight", look)
    command._preflight(state, [], 0)
    (looking,) = told
    assert (looking.phase, looking.reason) == (Phase.PREFLIGHT, Reason.STARTING)
    assert "fetching" not in looking.message
    after = state.status()
    assert (after.phase, after.reason) == (Phase.FETCHING, Reason.FETCHING)
    assert after.message == "fetching hf://org/repo"
