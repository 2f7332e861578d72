"""Flatwake beside llama-server on this CPU: the same files, prompts and client, in turn.

Installs the peer into the cache on first use (a quarter of an hour of compiling), chooses its best
settings, then measures both over sockets and writes docs/benchmarks/cpu.json and its table. Keep
the machine quiet: the load average is written beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import yaml
from figures import File, Side, by_users_table, document, table
from files import q4_0_of, random_of, tensor_bytes
from flatwake_service.cli import machine
from flatwake_service.weights.cache import default_cache
from flatwake_service.weights.fetch import fetch
from measure import PROMPT, Prompts, decode, first_token
from peer import Peer, PeerMissing, install
from rich.console import Console
from rich.progress import Progress
from servers import USERS, ours, peers

ROOT = Path(__file__).parents[2]
JSON, PAGE = ROOT / "docs/benchmarks/cpu.json", ROOT / "docs/benchmarks/cpu.md"
BOTH = (1, 4, 8)
LENGTHS = (32, 512, 2048)
SETTINGS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "unified KV": ("--kv-unified",),
    "flash attention off": ("--flash-attn", "off"),
    "batches of 2048": ("-ub", "2048"),
    "polling": ("--poll", "100"),
}
"""What is tried of the peer's, each alone; repacking of Q4_0 is its default."""
WITHOUT_AMX = "without AMX"
"""Tried too where the processor has it: a build of its own."""
CONSOLE = Console(stderr=True)


def main() -> int:
    options = _arguments()
    try:
        with Progress(console=CONSOLE) as bar:
            task = bar.add_task("the peer", total=None)
            peer = install(
                lambda what, n, all_: bar.update(task, description=what, completed=n, total=all_)
            )
    except PeerMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    load = os.getloadavg()
    q4_1 = options.model or _smollm2()
    found: dict[str, Any] = {}
    files = []
    for name, path in (("Q4_1", q4_1), ("Q4_0", q4_0_of(q4_1, options.files))):
        variants = _variants(peer)
        settings, tried = _best_settings(variants, path, name)
        found.setdefault("peer_settings", {})[name] = {"chosen": settings, "tried": tried}
        files.append(_compare(variants[settings], path, name, options))
    l3 = _l3_bytes()
    large = random_of(q4_1, 4 * l3, options.files)
    found["l3_mb"] = round(l3 / 1e6)
    for name, path in (("Q4_1", q4_1), ("random", large)):
        found.setdefault("bandwidth_share", {})[name] = _bandwidth(path, options.rounds)
    written = {
        **machine.provenance(),
        "command": "make bench",
        "peer": peer.version,
        "rounds": options.rounds,
        "load_average": [round(load[0], 2), round(os.getloadavg()[0], 2)],
        **document(files),
        **found,
    }
    _write(written, options.json, options.page)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH=…", description=__doc__)
    parser.add_argument("--model", type=Path, help="a Q4_1 GGUF file (the quickstart's)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of both sides (5)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens a user (128)")
    parser.add_argument("--json", type=Path, default=JSON, help="where the figures go")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page with their table")
    parser.add_argument(
        "--files", type=Path, default=default_cache().parent / "bench", help="made model files"
    )
    return parser.parse_args()


def _smollm2() -> Path:
    """The quickstart's model, fetched if it isn't in the cache."""
    source = yaml.safe_load((ROOT / "examples/smollm2.yaml").read_text())["spec"]["model"]["source"]
    return fetch(source).path


Variant = tuple[Path, tuple[str, ...]]
"""A program of the peer's, and its arguments."""


def _variants(peer: Peer) -> dict[str, Variant]:
    found = {label: (peer.server, settings) for label, settings in SETTINGS.items()}
    if peer.without_amx is not None:
        found[WITHOUT_AMX] = (peer.without_amx, ())
    return found


def _best_settings(
    variants: dict[str, Variant], model: Path, name: str
) -> tuple[str, dict[str, float]]:
    """The settings with the best product of decode speeds and prefill speed, and all tried."""
    tried = {}
    prompts = Prompts(model, seed=1)
    for label, (program, settings) in variants.items():
        CONSOLE.print(f"{name}: the peer, {label}")
        with peers(program, model, settings) as server:
            speeds = [512 / first_token(server, prompts.fresh(512))]
            speeds += [decode(server, [prompts.fresh(PROMPT) for _ in range(u)], 48) for u in BOTH]
        product = 1.0
        for speed in speeds:
            product *= speed
        tried[label] = round(product ** (1 / len(speeds)), 1)
    return max(tried, key=lambda label: tried[label]), tried


def _compare(variant: Variant, model: Path, name: str, options: argparse.Namespace) -> File:
    """Both servers up; each measurement is taken of both, one after the other."""
    mine, theirs = Side(), Side()
    program, settings = variant
    prompts = Prompts(model, seed=2)
    with ExitStack() as stack:
        pair = [
            (stack.enter_context(ours(model)), mine),
            (stack.enter_context(peers(program, model, settings)), theirs),
        ]
        for turn in range(options.rounds):
            CONSOLE.print(f"{name}: round {turn + 1} of {options.rounds}")
            order = pair if turn % 2 == 0 else pair[::-1]
            for length in LENGTHS:
                prompt = prompts.fresh(length)
                for server, side in order:
                    side.first.setdefault(length, []).append(first_token(server, prompt))
            for users in range(1, USERS + 1):
                asked = [prompts.fresh(PROMPT) for _ in range(users)]
                for server, side in order:
                    if side is mine or users in BOTH:
                        speed = decode(server, asked, options.tokens)
                        side.decode.setdefault(users, []).append(speed)
                shown = ", ".join(
                    f"{side.decode[users][-1]:.0f}" for _, side in pair if users in side.decode
                )
                CONSOLE.print(f"  {users} users: {shown} tok/s")
        for server, side in pair:
            side.peak_bytes = server.peak_bytes()
            side.startup.append(server.startup)
        mine.besides_bytes = (
            pair[0][0].private_bytes() - tensor_bytes(model) - _kv_bytes(pair[0][0].url)
        )
    for _ in range(options.rounds - 1):
        with ours(model) as server:
            mine.startup.append(server.startup)
        with peers(program, model, settings) as server:
            theirs.startup.append(server.startup)
    return File(name, mine, theirs)


def _kv_bytes(url: str) -> int:
    """KV that was touched, as our server tells."""
    import re

    import httpx

    text = httpx.get(url.removesuffix("/v1") + "/metrics").text
    found = re.search(r'^flatwake_memory_bytes\{.*kind="kv_touched".*\} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _bandwidth(model: Path, rounds: int) -> dict[str, float]:
    """`flatwake bench speed`: the engine alone at one user, against reads of as many bytes."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "speed.json"
        command = [sys.executable, "-m", "flatwake_service.cli.main", "bench", "speed", str(model)]
        command += ["--backend", "cpu", "--rounds", str(rounds), "--users", "1"]
        CONSOLE.print(f"{model.name}: the engine alone, against the memory's read rate")
        subprocess.run([*command, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        figures = json.loads(out.read_text())
    return {
        "value": figures["bandwidth_share"]["1"],
        "weights_mb": round(figures["weight_bytes"] / 1e6, 1),
        "read_gb_s": round(figures["read_bytes_per_second"] / 1e9, 1),
        "tok_s": figures["decode_tokens_per_second"]["1"],
    }


def _l3_bytes() -> int:
    """The largest cache that the first processor sees."""
    sizes = [
        p.read_text().strip()
        for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes), default=32 << 20)


MARKS = "<!-- figures: made by `make bench` -->", "<!-- end of figures -->"


def _write(found: dict[str, Any], target: Path, page: Path) -> None:
    """The JSON, and its table between the page's marks."""
    target.write_text(json.dumps(found, indent=2) + "\n")
    load = found["load_average"][0]
    head = f"{found['date']}, {found['machine']}, load average {load} at the start."
    lines = [head, "", *table(found), "", "Aggregate tok/s by users:", "", *by_users_table(found)]
    print("\n".join(lines))
    if not page.exists():
        return
    before, _, rest = page.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n{chr(10).join(lines)}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    sys.exit(main())
