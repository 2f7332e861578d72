"""Waves that never happened: answers, marks and counters put together by hand."""

from __future__ import annotations

from flatwake_loadtest.answer import Answer
from flatwake_loadtest.metrics import Scrape
from flatwake_loadtest.plan import Kind, Plan, Target, Wave
from flatwake_loadtest.record import Mark, Played, Record, Rest


def answer(
    outcome: str = "length",
    tokens: int = 10,
    *,
    sent: float = 0.0,
    first: float = 0.1,
    gap: float = 0.01,
    tag: str = "",
    text: str = "",
    usage: int | None = None,
    status: int = 200,
    retry_after: str | None = None,
    exact: bool = False,
    late: tuple[float | None, float | None] = (None, None),
    doubt: float = 0.0,
) -> Answer:
    """An answer with evenly spaced tokens; `late` is what its first and last waited to be read,
    `doubt` what the first may have waited besides."""
    stamps = [first + index * gap for index in range(tokens)]
    return Answer(
        wave="wave",
        sent=sent,
        seconds=first + tokens * gap,
        outcome=outcome,
        status=status,
        stamps=stamps,
        tokens=tokens,
        exact=exact,
        late_first=late[0],
        late_last=late[1],
        doubt_first=doubt,
        usage_prompt=20 if outcome in ("stop", "length") else None,
        usage_completion=tokens if usage is None and outcome in ("stop", "length") else usage,
        retry_after=retry_after,
        tag=tag,
        text=text,
    )


def played(
    kind: Kind,
    answers: list[Answer],
    *,
    users: int = 4,
    requests: int = 0,
    marks: list[tuple[str, float, int]] | None = None,
    rests: tuple[str, str] | None = None,
    rest_seconds: float = 0.05,
    lag: float = 0.0,
    name: str = "wave",
) -> Played:
    """A wave of ten seconds; `rests` are the server's metrics before and after."""
    out = Played(Wave(kind, name, users, requests=requests), begin=0.0, lag=lag)
    for each in answers:
        out.add(each)
    out.marks = [Mark(*each) for each in marks or [("end", 10.0, 0)]]
    if rests:
        begin, end = (Scrape.parse(text) for text in rests)
        out.rests = {"begin": Rest(0.0, begin), "end": Rest(rest_seconds, end)}
    return out


def record(*waves: Played) -> Record:
    target = Target("ours", "http://127.0.0.1:1", metrics=True)
    out = Record(Plan((target,), tuple(each.wave for each in waves)))
    out.waves = {each.wave.name: each for each in waves}
    return out


def metrics(
    requests: dict[str, int] | None = None,
    generated: int = 0,
    prompt: int = 0,
    discarded: int = 0,
    **more: float,
) -> str:
    """/metrics of a server that has done this much since it started."""
    lines = [f'requests_total{{outcome="{name}"}} {n}' for name, n in (requests or {}).items()]
    lines += [f"generated_tokens_total {generated}", f"discarded_tokens_total {discarded}"]
    lines += [f"reported_tokens_total {generated - discarded}", f"prompt_tokens_total {prompt}"]
    lines += ["requests_in_flight 0", 'kv_blocks{state="used"} 0', 'state_slots{state="used"} 0']
    lines += [f"{name} {value}" for name, value in more.items()]
    return "".join(f"flatwake_{line}\n" for line in lines)
