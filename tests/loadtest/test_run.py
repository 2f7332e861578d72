"""Whole runs against a server that is right, and against servers that are wrong on purpose."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_servers import Start, fake_server
from flatwake_loadtest.answer import Json


def load(*words: str, out: Path, timeout: float = 200) -> tuple[int, Json, str]:
    """(exit code, report, what was printed) of `flatwake load`."""
    command = [sys.executable, "-m", "flatwake_loadtest.cli", *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    print(done.stdout, done.stderr)
    file = out / "report.json"
    return done.returncode, json.loads(file.read_text()) if file.exists() else {}, done.stdout


def failed(report: Json) -> set[str]:
    return {
        each["about"] for each in report["checks"] if each["required"] and each["state"] != "holds"
    }


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Json, Path]:
    """The short set against a server without a fault."""
    out = tmp_path_factory.mktemp("good")
    with fake_server("--rate", "150", "--queue", "8") as url:
        code, report, _ = load(url, "--short", "--seconds", "1", "--minutes", "0.2", out=out)
    return code, report, out


def test_a_good_server_keeps_every_promise(good: tuple[int, Json, Path]) -> None:
    code, report, _ = good
    assert failed(report) == set()
    assert report["holds"]
    assert code == 0


def test_the_report_has_every_wave_with_its_figures(good: tuple[int, Json, Path]) -> None:
    _, report, _ = good
    assert report["schema"] == "flatwake.dev/load/v1"
    waves = {wave["name"]: wave for wave in report["waves"]}
    assert list(waves) == [
        "1 user", "4 users", "8 users", "correctness", "join, 32 tokens", "rising 1 to 8",
        "burst beyond the queue", "disconnects", "faults among users", "endurance",
    ]  # fmt: skip
    one, eight = waves["1 user"], waves["8 users"]
    # The fake gives each stream 150 tokens/s, a little less in company.
    assert one["tokens_per_second_per_user"] == pytest.approx(150, rel=0.15)
    assert eight["tokens_per_second"] > 3 * one["tokens_per_second"]
    assert one["inter_token"]["p50_ms"] == pytest.approx(6.7, rel=0.2)
    assert waves["burst beyond the queue"]["outcomes"]["length"] == 88
    assert waves["burst beyond the queue"]["refused"] > 0
    assert waves["disconnects"]["outcomes"]["cancelled"] > 0
    assert waves["join, 32 tokens"]["join_ttft_ms"] > 0
    kinds = {(each["process"], each["kind"]) for each in report["memory"]["verdicts"]}
    assert {("api", "rss"), ("engine", "rss"), ("api", "open_files")} <= kinds


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.plots = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("src") or (tag == "link" and given.get("href")):
            self.loads.append(tag)
        self.plots += given.get("class") == "plot"


def test_the_page_is_one_file_that_needs_nothing_else(good: tuple[int, Json, Path]) -> None:
    _, _, out = good
    text = (out / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.loads == []
    assert page.plots >= 4
    assert "Every promise holds" in text
    assert 'name="viewport"' in text


def test_two_reports_are_compared(good: tuple[int, Json, Path], tmp_path: Path) -> None:
    _, report, out = good
    worse = json.loads(json.dumps(report))
    worse["waves"][0]["tokens_per_second"] *= 0.8
    worse["checks"][0]["state"] = "fails"
    (tmp_path / "new.json").write_text(json.dumps(worse))
    names = [str(out / "report.json"), str(tmp_path / "new.json")]
    code, _, said = load("--compare", *names, out=tmp_path / "none")
    assert code == 0
    assert "-20.0%" in said
    assert "held before" in said
    (tmp_path / "other.json").write_text("{}")
    code, _, said = load("--compare", names[0], str(tmp_path / "other.json"), out=tmp_path)
    assert code == 2
    assert "is no report of this version" in re.sub(r"\s+", " ", said)


@pytest.mark.parametrize(
    ("fault", "wave", "promise"),
    [
        ("--cross", "correctness", "no answer crosses into another"),
        ("--wrong-under-load", "correctness", "greedy answers are the same alone and under load"),
        ("--miscount", "correctness", "requests are counted alike"),
        ("--drop=99", "correctness", "every request ends as it should"),
        ("--leak-slots", "burst", "everything is given back"),
        ("--no-retry-after", "burst", "a full queue says 429 and when to come back"),
    ],
)
def test_each_fault_fails_the_run_and_is_named(
    fault: str, wave: str, promise: str, start: Start, tmp_path: Path
) -> None:
    slots = ["--slots", "200"] if fault == "--leak-slots" else ["--queue", "4"]
    url = start(fault, "--rate", "400", *slots)
    words = ["--waves", wave, "--burst", "40"]
    code, report, _ = load(url, "--short", *words, out=tmp_path)
    assert code == 1
    assert promise in failed(report)


def test_a_histogram_that_lies_is_found(start: Start, tmp_path: Path) -> None:
    url = start("--histogram-factor", "0.9")
    words = ["--waves", "steady", "--users", "1", "--seconds", "1"]
    code, report, _ = load(url, "--short", *words, out=tmp_path)
    states = {each["about"]: each["state"] for each in report["checks"]}
    # However busy this machine is: the client knows how late it was.
    assert states["the server's mean gap is the client's"] == "fails"
    assert states["the server's mean time to first token is the client's"] != "fails"
    assert code == 1


def test_a_peer_is_measured_in_turns(start: Start, tmp_path: Path) -> None:
    # The peer is half as fast and, like any stranger, exports none of our metrics.
    ours, peer = start("--rate", "200"), start("--rate", "100", "--no-metrics")
    words = ["--waves", "steady", "--users", "2", "--seconds", "1.5", "--peer", peer]
    code, report, _ = load(ours, "--short", *words, out=tmp_path)
    (row,) = report["peers"]
    assert (row["users"], len(row["ours_tokens_per_second"])) == (2, 2)
    assert row["ratio"] == pytest.approx(2, rel=0.15)
    assert [wave["target"] for wave in report["waves"]] == ["ours", "peer", "peer", "ours"]
    assert "Beside a peer" in (tmp_path / "report.html").read_text()
    assert code == 0, failed(report)


def test_recorded_prompts_can_be_asked(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one two three", "max_tokens": 5}\n')
    words = ["--waves", "steady", "--users", "1", "--seconds", "0.5", "--replay", str(file)]
    _, report, _ = load(start(), "--short", *words, out=tmp_path)
    (wave,) = report["waves"]
    assert wave["tokens"] == 5 * wave["outcomes"]["length"]


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["http://127.0.0.1:9"], "doesn't answer"),
        (["nothing.yaml"], "neither an address (http://…) nor a file"),
        (["{url}", "--users", "many"], "as in 1,4,8"),
        (["{url}", "--waves", "tsunami"], "no wave tsunami"),
        (["{url}", "--profile", "poem"], "no profile poem"),
        (["{url}", "--model", "other"], "it serves fake"),
        (["{url}", "{url}"], "--peer"),
    ],
)
def test_bad_input_gets_one_clear_error(
    words: list[str], cure: str, steady_server: str, tmp_path: Path
) -> None:
    given = [word.format(url=steady_server) for word in words]
    code, _, said = load(*given, "--short", out=tmp_path)
    assert code == 2
    assert cure in re.sub(r"\s+", " ", said)


@pytest.mark.slow
@pytest.mark.parametrize("process", ["engine", "api"])
def test_a_seeded_leak_is_found_live_and_the_process_named(
    process: str, start: Start, tmp_path: Path
) -> None:
    url = start("--leak", "2000", "--process", process)
    words = ["--waves", "endurance", "--requests", "600", "--minutes", "1", "--runs", "1"]
    code, report, _ = load(url, *words, out=tmp_path)
    assert code == 1
    assert report["flatness"] == "not flat"
    assert report["growing"] == [process]


@pytest.mark.slow
def test_a_clean_server_is_flat_live(start: Start, tmp_path: Path) -> None:
    words = ["--waves", "endurance", "--requests", "600", "--minutes", "1", "--runs", "1"]
    code, report, _ = load(start(), *words, out=tmp_path)
    assert report["flatness"] == "flat"
    assert code == 0, failed(report)


def test_every_field_of_the_report_is_in_the_docs(good: tuple[int, Json, Path]) -> None:
    _, report, _ = good
    docs = (Path(__file__).parents[2] / "docs" / "load.md").read_text()
    described = set(re.findall(r"`(\w+)`", docs[docs.index("## The report") :]))
    given = {*report, *report["memory"], *report["checks"][0], *report["memory"]["verdicts"][0]}
    for wave in report["waves"]:
        given |= {name for name in wave if not name.startswith(("join", "others"))}
    # A reader knows these without being told; `unit` and `process` are said in words.
    assert given - described - {"unit", "joiner_gap_ms"} == set()


def test_an_interrupted_run_still_writes_what_it_saw(start: Start, tmp_path: Path) -> None:
    words = [start(), "--short", "--waves", "steady,endurance", "--users", "1", "--minutes", "60"]
    command = [sys.executable, "-m", "flatwake_loadtest.cli", *words, "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().startswith("1 user"):
                process.send_signal(signal.SIGINT)
                break
        process.stdout.read()
    assert process.wait() == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["waves"][0]["name"] == "1 user"
    assert "every wave was played" in failed(report)
