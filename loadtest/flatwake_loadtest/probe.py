"""What a server is like, asked before a run: its model, context, abilities, words in tokens."""

from __future__ import annotations

import http.client
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from .answer import Answer, Json
from .engine import LOCAL
from .errors import LoadError
from .metrics import Scrape
from .plan import Target
from .prompts import Prompt, Words, fixed
from .stream import Client

_FEW, _MANY = 16, 128  # words


@dataclass(frozen=True)
class Probed:
    """A target, what the server says about itself, and its local processes by name."""

    target: Target
    status: Json
    processes: dict[str, int]


def probe(
    name: str,
    url: str,
    *,
    api_key: str | None = None,
    model: str | None = None,
    queue: int | None = None,
) -> Probed:
    """Asks a running server; raises LoadError when it can't serve a run.

    `queue` is how many requests may wait, where that is known.
    """
    try:
        with Client(url, api_key, timeout=120) as client:
            return _probe(client, Target(name, url, model, api_key, queue=queue))
    except ValueError as error:
        raise LoadError(f"{url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise LoadError(f"{url} doesn't answer ({error}); start it or give its address") from error


def _probe(client: Client, target: Target) -> Probed:
    status = _json(client, "/status")
    models = _models(client, target)
    chosen = next((each for each in models if each.get("id") == target.model), None)
    if chosen is None and models:
        chosen = models[0]
        if target.model is not None:
            served = ", ".join(str(each.get("id")) for each in models)
            raise LoadError(f"{target.url} doesn't serve {target.model}; it serves {served}")
    chosen = chosen or {}
    context = status.get("context") or chosen.get("max_model_len")
    context = context or (chosen.get("meta") or {}).get("n_ctx_train")
    target = replace(
        target,
        model=target.model or chosen.get("id"),
        context=int(context) if context else None,
        slots=status.get("max_sequences"),
        metrics=_metrics(client),
    )
    few, many = _count(client, target, _FEW), _count(client, target, _MANY)
    target = replace(target, words=Words.calibrate((_FEW, few), (_MANY, many)))
    prompt = fixed(_FEW, 2, 0, target.words)
    target = replace(
        target,
        ignore_eos=_takes(client, target, prompt, ignore_eos=True).complete,
        logprobs=_takes(client, target, prompt, logprobs=True).exact,
    )
    return Probed(target, status, _processes(target.url, status))


def _json(client: Client, path: str) -> Json:
    """The object at a path, empty where there is none: peers have no /status."""
    code, body = client.get(path)
    try:
        found = json.loads(body) if code == 200 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _models(client: Client, target: Target) -> list[Json]:
    code, body = client.get("/v1/models")
    if code == 401:
        raise LoadError(f"{target.url} wants a key; give --api-key or set OPENAI_API_KEY")
    try:
        return list(json.loads(body)["data"]) if code == 200 else []
    except (ValueError, KeyError, TypeError):
        return []


def _metrics(client: Client) -> bool:
    code, body = client.get("/metrics")
    return code == 200 and bool(Scrape.parse(body.decode(errors="replace")))


def _count(client: Client, target: Target, words: int) -> int:
    """The prompt tokens that the server counts for so many words."""
    prompt = fixed(words, 1, words, Words(overhead=0.0))
    answer = client.chat(target.body(prompt))
    if not answer.complete:
        raise LoadError(f"{target.url} fails on a plain chat request: {_why(answer)}")
    if answer.usage_prompt is None:
        # Without usage the suite can only take a word for a token.
        return 12 + words
    return answer.usage_prompt


def _why(answer: Answer) -> str:
    return f"status {answer.status}, {answer.outcome}: {answer.error or 'no reason given'}"


def _takes(client: Client, target: Target, prompt: Prompt, **extra: bool) -> Answer:
    return client.chat(target.body(prompt) | extra)


def _processes(url: str, status: Json) -> dict[str, int]:
    """The server's processes, if they are this machine's: /proc is read for what /metrics lacks."""
    if urlsplit(url).hostname not in LOCAL:
        return {}
    pids = status.get("pids") or {}
    return {name: pid for name, pid in pids.items() if pid and _ours(int(pid))}


def _ours(pid: int) -> bool:
    """Whether /proc shows a Python process of this id: a server in a container has other ids."""
    try:
        command = (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return b"python" in command or b"flatwake" in command or pid == os.getpid()
