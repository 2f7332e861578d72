"""Weights as float32: against a scalar transcription of the formats, one weight at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from flatwake_kernels.dtype import narrow_bf16
from flatwake_service.errors import UnsupportedModel
from flatwake_service.weights import QUANTIZED, Format, block_shape
from flatwake_service.weights.dequantize import dequantize_data, widen
from gguf_files import quantize, random_blocks


def half(block: bytes, at: int) -> np.float32:
    return np.float32(struct.unpack_from("<e", block, at)[0])


def scale_and_min(scales: bytes, j: int) -> tuple[int, int]:
    """ggml-quants.c, get_scale_min_k4."""
    if j < 4:
        return scales[j] & 63, scales[j + 4] & 63
    low = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4
    return low, scales[j + 4] >> 4 | (scales[j] >> 6) << 4


def scalar(block: bytes, format_: Format) -> list[np.float32]:
    """One block's weights, as ggml-quants.c's dequantize_row_* computes them."""
    f = np.float32
    match format_:
        case Format.Q8_0:
            return [f(struct.unpack_from("b", block, 2 + i)[0]) * half(block, 0) for i in range(32)]
        case Format.Q4_0:
            nibbles = [b & 15 for b in block[2:]] + [b >> 4 for b in block[2:]]
            return [f(n - 8) * half(block, 0) for n in nibbles]
        case Format.Q4_1:
            nibbles = [b & 15 for b in block[4:]] + [b >> 4 for b in block[4:]]
            return [f(n) * half(block, 0) + half(block, 2) for n in nibbles]
        case Format.Q4_K | Format.Q5_K:
            d, dmin, scales = half(block, 0), half(block, 2), block[4:16]
            high, low = (b"", block[16:]) if format_ == Format.Q4_K else (block[16:48], block[48:])
            result = []
            for j in range(8):
                scale, minimum = scale_and_min(scales, j)
                for i in range(32):
                    q = low[j // 2 * 32 + i] >> 4 * (j % 2) & 15
                    if high:
                        q |= (high[i] >> j & 1) << 4
                    result.append(d * f(scale) * f(q) - dmin * f(minimum))
            return result
        case Format.Q6_K:
            low, high, scales, d = block[:128], block[128:192], block[192:208], half(block, 208)
            result = []
            for n in range(256):
                part, quarter, i = n // 128, n % 128 // 32, n % 32
                nibble = low[part * 64 + (quarter % 2) * 32 + i] >> 4 * (quarter // 2) & 15
                q = nibble | (high[part * 32 + i] >> 2 * quarter & 3) << 4
                scale = struct.unpack_from("b", scales, n // 16)[0]
                result.append(d * f(scale) * f(q - 32))
            return result
    raise AssertionError(format_)


@pytest.mark.parametrize("format_", QUANTIZED, ids=lambda f: f.name)
def test_every_block_format_agrees_with_its_scalar_definition(format_: Format) -> None:
    weights, size = block_shape(format_)
    stored = random_blocks(format_, 3, 2 * weights, np.random.default_rng(7))
    got = dequantize_data(stored, format_)
    want = [
        [
            w
            for at in range(0, len(row), size)
            for w in scalar(row[at : at + size].tobytes(), format_)
        ]
        for row in stored
    ]
    assert got.shape == (3, 2 * weights)
    np.testing.assert_array_equal(got, np.array(want, dtype=np.float32))


@pytest.mark.parametrize("format_", [*QUANTIZED, Format.BF16, Format.F16], ids=lambda f: f.name)
def test_quantising_and_back_stays_within_the_format_s_step(format_: Format) -> None:
    values = np.random.default_rng(3).normal(size=(5, 512)).astype(np.float32)
    stored = quantize(values, format_)
    if format_ == Format.BF16:
        stored = stored.view(np.uint16)
    step = {Format.Q8_0: 0.03, Format.BF16: 0.02, Format.F16: 2e-3, Format.Q5_K: 0.15}
    step |= {Format.Q6_K: 0.1}
    assert np.abs(dequantize_data(stored, format_) - values).max() < step.get(format_, 0.4)


def test_bf16_widens_exactly_and_narrows_half_to_even() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    wide = widen(bits)
    finite = np.isfinite(wide)
    np.testing.assert_array_equal(narrow_bf16(wide)[finite], bits[finite])
    assert np.isnan(widen(narrow_bf16(wide)))[np.isnan(wide)].all()
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001], dtype=np.uint32).view(np.float32)
    assert narrow_bf16(ties).tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_an_integer_tensor_is_no_weight() -> None:
    with pytest.raises(UnsupportedModel, match=r"inv is stored as I64; formats known: .*Q6_K"):
        dequantize_data(np.zeros(3, np.int64), Format.I64, "inv")
