"""The comparison's arithmetic and its files; how fast anything is, is no test."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from figures import File, Side, by_users_table, document, table
from files import q4_0_of
from peer import mend


def _files() -> list[File]:
    ours = Side(
        {1: [200.0, 220.0, 210.0], 2: [300.0, 310.0, 305.0], 8: [800.0, 700.0, 900.0]},
        {32: [0.02, 0.03, 0.02]},
        [1.0, 2.0, 1.5],
        200_000_000,
        100_000_000,
    )
    peer = Side({1: [100.0, 100.0, 100.0], 8: [200.0, 200.0, 180.0]}, {32: [0.05, 0.06, 0.03]})
    peer.startup, peer.peak_bytes = [0.5, 0.6, 0.7], 250_000_000
    return [File("Q4_1", ours, peer)]


def test_ratios_are_medians_of_the_rounds_own_ratios() -> None:
    found = document(_files())
    assert found["decode_ratio"]["Q4_1"] == {"1": 2.1, "8": 4.0}
    assert found["prefill_ratio"]["Q4_1"] == {"32": 2.0}, "theirs over ours: more is faster"
    assert found["by_users"]["Q4_1"] == {"1": 210.0, "2": 305.0, "8": 800.0}
    assert found["user_tok_s"]["Q4_1"]["8"] == 100.0
    assert found["startup_s"]["Q4_1"] == 1.5
    assert found["besides_mb"]["Q4_1"] == 100.0


def test_the_table_says_which_goals_are_missed() -> None:
    lines = table(document(_files()))
    (one,) = [line for line in lines if "decode, 1 user, " in line]
    (eight,) = [line for line in lines if "decode, 8 users" in line]
    assert one.endswith("| 2.10 | 2 |")
    assert eight.endswith("| 4.00 | 4 |")
    assert "missed" not in "".join(lines)
    slow = _files()
    slow[0].ours.decode[8] = [100.0, 100.0, 100.0]
    (eight,) = [line for line in table(document(slow)) if "decode, 8 users" in line]
    assert eight.endswith("| 0.50 | 4, missed |")
    slow[0].ours.startup, slow[0].ours.besides_bytes = [2.5], 160_000_000
    found = {**document(slow), "bandwidth_share": {"Q4_1": {"value": 0.5}}}
    missed = [line for line in table(found) if "missed" in line]
    assert missed[1:] == [
        "| Q4_1 | exec to first token, s | 2.5 | 0.6 |  | 2, missed |",
        "| Q4_1 | beside weights and KV, MB | 160 |  |  | 150, missed |",
        "| Q4_1 | share of the read rate |  |  | 0.50 | 0.75, missed |",
    ]
    assert by_users_table(document(slow))[-1] == "| Q4_1 | 210 | 305 | 100 |"


def test_a_q4_0_file_holds_the_same_weights(tmp_path: Path) -> None:
    source = tmp_path / "tiny.Q4_1.gguf"
    weights = np.random.default_rng(5).standard_normal((64, 256)).astype(np.float32)
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_string("general.name", "tiny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    kind = gguf.GGMLQuantizationType.Q4_1
    writer.add_tensor("w", gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.add_tensor("norm", weights[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    made = gguf.GGUFReader(q4_0_of(source, tmp_path))
    tensors = {t.name: t for t in made.tensors}
    assert tensors["w"].tensor_type.name == "Q4_0"
    assert list(tensors["w"].shape) == [256, 64]
    values = gguf.quants.dequantize(tensors["w"].data, tensors["w"].tensor_type)
    assert np.abs(values - weights).max() < 0.7, "a step of each format"
    assert np.abs(values - weights).mean() < 0.15
    assert np.array_equal(tensors["norm"].data, weights[0])
    assert made.fields["general.name"].contents() == "tiny"
    assert made.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]


def test_the_peer_s_tiles_are_written_before_they_are_loaded(tmp_path: Path) -> None:
    source = tmp_path / "ggml/src/ggml-cpu/amx/mmq.cpp"
    source.parent.mkdir(parents=True)
    source.write_text("    tc.rows[7] = 16;\n    _tile_loadconfig(&tc);\n    done = true;\n")
    mend(tmp_path)
    mend(tmp_path)
    lines = source.read_text().splitlines()
    assert [line.split("(")[0].strip() for line in lines[1:3]] == [
        "__asm__ volatile",
        "_tile_loadconfig",
    ]
    assert len(lines) == 4
