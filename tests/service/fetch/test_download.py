"""A download ends with the right file or one clear error, whatever the server does."""

from __future__ import annotations

import errno
import hashlib
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from file_server import Fault, FileServer
from flatwake_service.errors import (
    CacheFull,
    CacheUnwritable,
    DigestMismatch,
    FetchError,
    NoProgress,
    SourceDenied,
    SourceNotFound,
)
from flatwake_service.weights.download import Downloader, Remote
from flatwake_service.weights.partial import Partial

DATA = np.random.default_rng(1).bytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()

pytestmark = pytest.mark.usefixtures("waits")


class Bench:
    """A downloader of the server's /file into a folder."""

    def __init__(self, server: FileServer, folder: Path) -> None:
        server.files["/file"] = DATA
        self.server = server
        self.target, self.note = folder / "file", folder / "file.json"
        self.bytes = 0

    def run(self, stall_timeout: float = 60, **remote: Any) -> str:
        def count(step: int, size: int | None) -> None:
            self.bytes += step
            assert self.bytes >= 0

        self.bytes = 0
        with httpx.Client(follow_redirects=True) as client:
            what = Remote("file", f"{self.server.url}/file", "the file", **remote)
            return Downloader(client, stall_timeout, count).download(what, self.target, self.note)

    def check(self, sha256: str) -> None:
        assert self.target.read_bytes() == DATA
        assert sha256 == SHA
        assert self.bytes == len(DATA)


@pytest.fixture
def bench(server: FileServer, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


def test_a_dropped_connection_is_resumed_where_it_was(bench: Bench) -> None:
    bench.server.faults = [Fault(drop=100_000), Fault(drop=50_000)]
    bench.check(bench.run())
    assert [r.headers["Range"] for r in bench.server.seen] == [
        None,
        "bytes=100000-",
        "bytes=150000-",
    ]
    assert bench.server.sent == len(DATA)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503),
        Fault(status=500),
        Fault(status=408),
        Fault(status=206),
        Fault(drop=0),
        Fault(ranges=False),
        Fault(shift=1),
        Fault(etag='"other"'),
        Fault(claim=10),
        Fault(claim=10**9, drop=300_000),
        Fault(status=200, headers={"ETag": '"captive portal"'}, body=b"x" * 10),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [False, True])
def test_a_fault_at_the_start_or_in_the_middle_costs_time_only(
    bench: Bench, fault: Fault, first: bool
) -> None:
    bench.server.faults = [fault] if first else [Fault(drop=100_000), fault]
    bench.check(bench.run(size=len(DATA), sha256=SHA))


def test_a_range_beyond_the_file_begins_anew(bench: Bench) -> None:
    bench.server.faults = [Fault(drop=100_000), Fault(status=416)]
    bench.check(bench.run())
    assert [r.headers["Range"] for r in bench.server.seen] == [None, "bytes=100000-", None]


def test_a_file_that_changes_in_the_middle_is_taken_whole(bench: Bench) -> None:
    old = b"o" * 200_000
    bench.server.files["/file"] = old
    bench.server.faults = [Fault(drop=150_000)]

    def change(path: str, sent: int) -> None:
        bench.server.files["/file"] = DATA

    bench.server.on_sent = change
    bench.check(bench.run())


def test_without_a_validator_only_a_known_digest_lets_it_go_on(bench: Bench) -> None:
    bench.server.etags = False
    bench.server.faults = [Fault(drop=100_000)]
    bench.check(bench.run())
    assert [r.headers["Range"] for r in bench.server.seen] == [None, None]
    bench.server.seen.clear()
    bench.target.unlink()
    bench.server.faults = [Fault(drop=100_000)]
    bench.check(bench.run(sha256=SHA))
    assert bench.server.seen[1].headers["Range"] == "bytes=100000-"


def test_a_weak_etag_isn_t_trusted(bench: Bench) -> None:
    bench.server.faults = [Fault(drop=100_000, etag='W/"1"'), Fault(etag='W/"1"')]
    bench.check(bench.run())
    assert bench.server.seen[1].headers["Range"] is None


def test_parts_that_do_not_fit_are_thrown_away_once(bench: Bench) -> None:
    bench.server.etags = False
    bench.target.write_bytes(b"x" * 1000)
    identity = hashlib.sha256(SHA.encode()).hexdigest()
    bench.note.write_text(json.dumps({"of": identity, "total": len(DATA)}))
    bench.check(bench.run(sha256=SHA))
    assert [r.headers["Range"] for r in bench.server.seen] == ["bytes=1000-", None]


def test_bytes_without_a_readable_note_are_not_used(bench: Bench) -> None:
    bench.target.write_bytes(DATA[:1000])
    for note in ("", "{", "[]", '{"of": "another file"}'):
        bench.note.write_text(note)
        bench.check(bench.run())
        assert bench.server.seen[-1].headers["Range"] is None


def test_a_whole_file_isn_t_asked_for_again(bench: Bench) -> None:
    bench.run()
    bench.server.seen.clear()
    bench.check(bench.run())
    assert bench.server.seen == []


def test_another_digest_is_named_and_nothing_is_kept(bench: Bench) -> None:
    with pytest.raises(DigestMismatch, match=rf"300000 bytes.*sha256:{SHA}, not sha256:{'0' * 64}"):
        bench.run(sha256="0" * 64)
    assert not bench.target.exists()
    assert len(bench.server.seen) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, SourceDenied), (403, SourceDenied), (404, SourceNotFound), (410, SourceNotFound)],
)
def test_a_refusal_is_typed_and_not_repeated(bench: Bench, status: int, kind: type) -> None:
    bench.server.faults = [Fault(status=status)]
    with pytest.raises(kind, match=f"the file: HTTP {status}"):
        bench.run()
    assert len(bench.server.seen) == 1


def test_the_cure_for_a_denial_depends_on_the_token(bench: Bench) -> None:
    bench.server.faults = [Fault(status=401), Fault(status=401)]
    with pytest.raises(SourceDenied, match="wants a token"):
        bench.run()
    with pytest.raises(SourceDenied, match="has no access"):
        bench.run(headers={"Authorization": "Bearer x"})


def test_retry_after_is_waited_for(bench: Bench, waits: list[float]) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    bench.server.faults = [
        Fault(status=429, headers={"Retry-After": "7"}),
        Fault(status=503, headers={"Retry-After": date}),
        Fault(status=503, headers={"Retry-After": "soon"}),
    ]
    bench.check(bench.run())
    assert waits[0] == 7
    assert 30 < waits[1] <= 40
    assert waits[2] < 1


def test_a_wait_beyond_the_stall_timeout_is_refused_at_once(bench: Bench) -> None:
    bench.server.faults = [Fault(status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(NoProgress, match=r"the file: HTTP 429; no byte has arrived for 0 s"):
        bench.run()


def test_a_server_that_only_fails_is_given_up(bench: Bench, waits: list[float]) -> None:
    bench.server.faults = [Fault(status=500)] * 50
    with pytest.raises(FetchError, match=r"the file: HTTP 500 \(7 attempts\)"):
        bench.run()
    assert waits == sorted(waits)


def test_failures_with_progress_between_them_never_add_up(bench: Bench) -> None:
    bench.server.faults = [Fault(drop=20_000)] * 14
    bench.check(bench.run())


def test_a_connection_that_stands_still_ends_in_time_and_keeps_what_came(bench: Bench) -> None:
    bench.server.faults = [Fault(drop=100_000, stall=True)] + [Fault(drop=0, stall=True)] * 9
    with pytest.raises(NoProgress, match=r"no byte has arrived for 0 s.*stall timeout 0.4 s"):
        bench.run(stall_timeout=0.4)
    assert bench.target.read_bytes() == DATA[:100_000]
    bench.server.faults = []
    bench.check(bench.run())
    assert bench.server.seen[-1].headers["Range"] == "bytes=100000-"


def test_a_host_that_isn_t_there_is_named(bench: Bench) -> None:
    bench.server.url = "http://127.0.0.1:9"
    with pytest.raises(FetchError, match=r"the file: .*refused.*attempts"):
        bench.run()


def test_redirects_are_followed_and_a_token_stays_with_its_host(bench: Bench) -> None:
    other = bench.server.url.replace("127.0.0.1", "localhost")
    bench.server.faults = [Fault(status=302, headers={"Location": f"{other}/file"})]
    bench.check(bench.run(headers={"Authorization": "Bearer secret"}))
    assert [r.headers["Authorization"] for r in bench.server.seen] == ["Bearer secret", None]


@pytest.mark.parametrize("location", ["/file", "ftp://127.0.0.1/file"])
def test_redirects_that_lead_nowhere_end(bench: Bench, location: str) -> None:
    bench.server.faults = [Fault(status=302, headers={"Location": location})] * 50
    with pytest.raises(FetchError, match="the file: "):
        bench.run()


def test_a_compressed_answer_is_refused(bench: Bench) -> None:
    bench.server.faults = [Fault(headers={"Content-Encoding": "gzip"})]
    with pytest.raises(FetchError, match="comes compressed"):
        bench.run()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, CacheFull), (errno.EDQUOT, CacheFull), (errno.EIO, CacheUnwritable)],
)
def test_a_disk_that_fails_gives_one_error_and_keeps_what_came(
    bench: Bench, number: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart = Partial.restart

    class Full:
        """A file on a disk with room for 100,000 bytes."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, block: bytes) -> None:
            if self._file.tell() + len(block) > 100_000:
                raise OSError(number, "the disk")
            self._file.write(block)

        def close(self) -> None:
            self._file.close()

    monkeypatch.setattr(Partial, "restart", lambda *given: Full(restart(*given)))
    with pytest.raises(kind, match="file"):
        bench.run()
    kept = bench.target.read_bytes()
    assert kept
    assert DATA.startswith(kept)
    monkeypatch.undo()
    bench.check(bench.run())
    assert bench.server.seen[-1].headers["Range"] == f"bytes={len(kept)}-"


def test_an_unwritable_folder_is_named(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(CacheUnwritable, match="absent"):
        Bench(server, tmp_path / "absent").run()
