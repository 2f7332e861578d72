"""Renew the golden traces: `make goldens` (needs torch and transformers).

Each file holds what transformers answered in float32, greedily: tokens, and the largest logits of
each position. The SmolLM2 file comes from the model that `make up` serves; the others from tiny
checkpoints with random weights that `support.tiny` writes again, bit by bit, wherever tests run.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from flatwake_service.text import load_tokenizer
from flatwake_service.verify import oracle
from flatwake_service.verify.prompts import PROMPTS
from flatwake_service.verify.trace import load, save
from flatwake_service.weights import open_checkpoint
from flatwake_service.weights.fetch import fetch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2] / "gpu"))

import planted_faults
from random_qwen3_5 import write
from tiny_models import TINY, write_tiny

FOLDER = Path(__file__).parent / "goldens"
HYBRID = Path(__file__).parents[2] / "fixtures" / "hybrid" / "model"
TOKENS = 64
TINY_TOKENS = 32
LENGTHS = (1, 5, 15, 16, 17, 63, 64, 65, 100, 129)
"""Of the tiny models' prompts: around the edges of blocks and chunks."""
RANDOM_LENGTHS = (3, 16, 65, 130, 300)
RANDOM_TOKENS = 40
QUESTIONS = (
    "The codeword is heron42. maple knoll jolly grove cedar delta. What is the codeword?",
    "The codeword is flint7. " + "birch lotus islet " * 12 + "What is the codeword?",
    "Continue functions.",
    "Continue json.",
    "Continue asyncio-task.",
    "Continue random.",
)


def notes() -> dict[str, str]:
    return oracle.versions() | {
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "script": Path(__file__).name,
    }


def smollm2(model: Path) -> None:
    tokenizer = load_tokenizer(open_checkpoint(model))
    prompts = [tokenizer.encode(text) for text in PROMPTS]
    done = 0

    def heard(count: int) -> None:
        nonlocal done
        done += count
        if done % TOKENS == 0:
            sys.stderr.write(f"\rsmollm2: {done // TOKENS} of {len(prompts)} prompts")

    traces = oracle.trace_oracle(oracle.load_oracle(model), prompts, TOKENS, heard)
    save(FOLDER / "smollm2-135m.npz", traces, notes())


def tiny() -> None:
    for name in TINY:
        with tempfile.TemporaryDirectory() as folder:
            model = write_tiny(Path(folder), name)
            rng = random.Random(name)
            prompts = [[rng.randrange(400) for _ in range(length)] for length in LENGTHS]
            traces = oracle.trace_oracle(oracle.load_oracle(model), prompts, TINY_TOKENS)
        save(FOLDER / f"{name}.npz", traces, notes())


def hybrid() -> None:
    tokenizer = load_tokenizer(open_checkpoint(HYBRID))
    chats = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in QUESTIONS]
    prompts = [tokenizer.encode(chat) for chat in chats]
    save(
        FOLDER / "hybrid.npz", oracle.trace_oracle(oracle.load_oracle(HYBRID), prompts, 48), notes()
    )


def random_weights(size: str) -> None:
    """A Qwen3.5 of a public size, whose weights are drawn again wherever it is compared."""
    with tempfile.TemporaryDirectory() as folder:
        model = write(size, Path(folder) / size, fresh=True)
        rng = random.Random(size)
        ids = [[rng.randrange(248320) for _ in range(n + RANDOM_TOKENS)] for n in RANDOM_LENGTHS]
        prompts = [i[:-RANDOM_TOKENS] for i in ids]
        fed = [i[-RANDOM_TOKENS:] for i in ids]
        traces = oracle.trace_forced(model, prompts, fed)
    save(FOLDER / f"random-{size}.npz", traces, notes())


def faults(size: str) -> None:
    """What share of that golden's counted tokens turns with each fault."""
    traces, _ = load(FOLDER / f"random-{size}.npz")
    largest = max(t.errors.max() for t in traces if t.errors is not None)
    counts = np.concatenate([t.margins for t in traces]) >= largest
    tokens = np.concatenate([t.tokens for t in traces])
    print(f"{counts.sum()} of {len(counts)} positions count")
    with tempfile.TemporaryDirectory() as folder:
        reader = oracle.load_oracle(write(size, Path(folder) / size, fresh=True))
    prompts, fed = [t.prompt for t in traces], [t.fed for t in traces]
    for name, fault in planted_faults.faults(reader, RANDOM_TOKENS):
        with fault:
            wrong = oracle.forced_logits(reader, prompts, fed)
        turned = np.concatenate([logits.argmax(axis=1) for logits in wrong]) != tokens
        print(f"{turned[counts].mean():6.1%} turn: {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", help="SmolLM2's source; without it, the rest")
    parser.add_argument("--random", action="store_true", help="only random-weight Qwen3.5 0.8B")
    parser.add_argument("--faults", action="store_true", help="only print what faults turn of it")
    options = parser.parse_args()
    if options.faults:
        faults("0.8B")
        return
    if options.random:
        random_weights("0.8B")
        return
    tiny()
    hybrid()
    if options.smollm2:
        smollm2(fetch(options.smollm2).path)


if __name__ == "__main__":
    main()
