"""`flatwake` itself: what it lists, what it says about what isn't there, and what it imports."""

from __future__ import annotations

import itertools
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
from flatwake_service.cli import main as cli


def test_help_has_a_line_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    names = {entry.name for entry in entry_points(group=cli.GROUP)}
    assert names == set(cli.SUMMARIES)
    for name, summary in cli.SUMMARIES.items():
        assert f"{name} " in said
        assert summary in said


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from flatwake_service.cli.main import main; main(['--help']); "
        "heavy = {'numpy', 'fastapi', 'pydantic', 'typer', 'httpx', 'torch', 'kopf'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["srve"]) == 2
    assert "did you mean 'serve'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flatwake 0.")


def test_no_command_is_a_bad_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage: flatwake COMMAND" in capsys.readouterr().out


def test_a_command_whose_extra_is_absent_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry = EntryPoint("operator", "absent_package.cli:app", cli.GROUP)
    assert cli._run(entry, []) == 1
    said = capsys.readouterr().err
    assert "'absent_package' isn't installed; pip install 'flatwake[operator]'" in said


@pytest.mark.parametrize("name", sorted(cli.SUMMARIES))
def test_every_command_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"flatwake {name}" in said
    prose = [line.strip() for line in said.partition("╭")[0].splitlines()]
    for line, following in itertools.pairwise(prose):
        if line and following:
            assert len(line) + len(following.split()[0]) + 1 > 78, f"broken off after: {line}"
