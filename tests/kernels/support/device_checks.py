"""What a device must hold beyond single ops: rows that don't depend on their company, graphs that
replay what was recorded, sampling as the reference does it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from attention_cases import attention_decode, attention_prefill
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op
from flatwake_kernels.dtype import Dtype, widen_bf16
from fused import FEW, HALF, WIDE, Found, combine_then_gate, product_norm_product, step_then_norm
from op_bench import SEED, Bench
from recurrent_cases import gdn
from sampling import Sampler, Slot

BF16, F16, F32 = Dtype.BF16, Dtype.F16, Dtype.F32
ROW_COUNTS = (1, 2, 3, 8, 13, 33, 50)
SHAPES = ((48, 256), (37, 2208), (100, 96))


def _product(
    bench: Bench,
    dtype: Dtype,
    shape: tuple[int, int],
    rows: int,
    gated: bool,
    most: int = ROW_COUNTS[-1],
) -> np.ndarray:
    """Bits of `rows` rows of a product; row r is the same for every `rows`."""
    outputs, inputs = shape
    layer = bench.layer(2 * outputs if gated else outputs, inputs, dtype)
    x = np.random.default_rng(SEED).standard_normal((most, inputs), np.float32)
    given, live = bench.given(x[:rows], dtype), bench.ints([rows])
    y = bench.empty(rows, outputs, dtype=dtype)
    kind = ops.GateUpSilu if gated else ops.Linear
    _run(bench.backend, kind(x=given, y=y, weight=layer, live=live))
    bench.check_guards()
    bits: np.ndarray = y.read().view(np.uint16 if dtype != F32 else np.uint32)
    return bits


def _run(backend: Backend, *calls: Op) -> None:
    with backend.record() as plan:
        for call in calls:
            plan.add(call)
    plan.run()


def rows_of_a_product_do_not_depend_on_their_company(backend: Backend, _: Backend) -> None:
    for dtype in (BF16, F16, F32):
        for shape in SHAPES:
            for gated in (False, True):
                everything = _product(Bench(backend, SEED), dtype, shape, ROW_COUNTS[-1], gated)
                for rows in ROW_COUNTS[:-1]:
                    found = _product(Bench(backend, SEED), dtype, shape, rows, gated)
                    assert np.array_equal(found, everything[:rows]), (dtype, shape, gated, rows)


def rows_of_a_chunk_do_not_depend_on_their_number(backend: Backend, reference: Backend) -> None:
    for dtype, shape, gated in product((BF16, F16), ((136, 96), (37, 160)), (False, True)):
        _compare_chunks(backend, reference, dtype, shape, gated, (130, 65, 128))


def rows_of_a_large_chunk_do_not_depend_on_their_number(
    backend: Backend, reference: Backend
) -> None:
    """With as many tiles as a device of some 132 units has in its second turn."""
    for dtype, gated in product((BF16, F16), (False, True)):
        shape = (1250 if gated else 2500, 160)
        _compare_chunks(backend, reference, dtype, shape, gated, (2040, 130))


def _compare_chunks(
    backend: Backend,
    reference: Backend,
    dtype: Dtype,
    shape: tuple[int, int],
    gated: bool,
    counts: tuple[int, ...],
) -> None:
    """Products of so many rows, the most first."""
    most, *fewer = counts
    all_rows = _product(Bench(backend, SEED), dtype, shape, most, gated, most)
    wanted = _product(Bench(reference, SEED), dtype, shape, most, gated, most)
    a, b = (_values(bits, dtype) for bits in (all_rows, wanted))
    error = np.abs(a - b).max() / np.abs(b).max()
    assert error < 2e-2, (dtype, shape, gated, error)
    for rows in fewer:
        found = _product(Bench(backend, SEED), dtype, shape, rows, gated, most)
        assert np.array_equal(found, all_rows[:rows]), (dtype, shape, gated, rows)


def _values(bits: np.ndarray, dtype: Dtype) -> np.ndarray:
    return widen_bf16(bits) if dtype == BF16 else bits.view(np.float16).astype(np.float32)


def attention_does_not_depend_on_company(backend: Backend, _: Backend) -> None:
    lengths = [[70], [1], [300], [33]]
    together = attention_decode(Bench(backend, SEED), lengths, 4)
    _run(backend, together)
    alone = attention_decode(Bench(backend, SEED), [lengths[0]], 1)
    # The same values in another place: the first sequence's row, its blocks, the whole pool.
    for name in ("kv",):
        backend.copy(alone.values[name], together.values[name])  # type: ignore[arg-type]
    alone.values["q"].write(together.values["q"].read()[:1])  # type: ignore[union-attr]
    alone.values["block_table"].write(  # type: ignore[union-attr]
        together.values["block_table"].read()[:1]  # type: ignore[union-attr]
    )
    _run(backend, alone)
    parts = -(-70 // 64)
    for name in ("partial", "partial_ml"):
        first = together.values[name].read()[0, :, :parts]  # type: ignore[union-attr]
        only = alone.values[name].read()[0, :, :parts]  # type: ignore[union-attr]
        assert np.array_equal(first, only), name


def attention_does_not_depend_on_how_a_prompt_is_cut(backend: Backend, _: Backend) -> None:
    for dtype in (BF16, F16, F32):
        types = {"dtype": dtype, "kv_dtype": dtype}
        whole = attention_prefill(Bench(backend, SEED), [list(range(1, 91))], 90, **types)
        _run(backend, whole)
        for first in (1, 31, 64, 89):
            part = attention_prefill(
                Bench(backend, SEED), [list(range(first + 1, 91))], 90, **types
            )
            backend.copy(_buffer(part, "kv"), _buffer(whole, "kv"))
            _buffer(part, "block_table").write(_buffer(whole, "block_table").read())
            q = _buffer(whole, "q").read()
            _buffer(part, "q").write(np.concatenate([q[first:], q[:first]]))
            _run(backend, part)
            found, wanted = (_buffer(op, "y").read() for op in (part, whole))
            assert np.array_equal(found[: 90 - first], wanted[first:]), (dtype, first)


def a_delta_net_does_not_depend_on_how_a_prompt_is_cut(backend: Backend, _: Backend) -> None:
    for dtype, head_map in ((BF16, 0), (BF16, 1), (F16, 0)):
        cut = [
            gdn(Bench(backend, SEED), ops.GdnChunk, [length], 256, dtype=dtype, head_map=head_map)
            for length in (150, *range(150, 0, -64))
        ]
        whole, *parts = cut
        _run(backend, whole)
        state, row = _buffer(parts[0], "state").read(), 0
        for op in parts:
            rows = min(64, 150 - row)
            for name in ("qkv", "ab"):
                _buffer(op, name).write(np.roll(_buffer(whole, name).read(), -row, axis=0))
            _buffer(op, "row_count").write(np.eye(1, 256, dtype=np.int32)[0] * rows)
            _buffer(op, "state").write(state)
            _run(backend, op)
            state, y = _buffer(op, "state").read(), _buffer(op, "y").read()
            wanted = _buffer(whole, "y").read()[row : row + rows]
            assert np.array_equal(y[:rows], wanted), (dtype, head_map, row)
            row += rows
        assert np.array_equal(state[1], _buffer(whole, "state").read()[1]), (dtype, head_map)


def _buffer(op: Op, name: str) -> Buffer:
    buffer = op.values[name]
    assert isinstance(buffer, Buffer)
    return buffer


def a_graph_replays_what_buffers_hold_then(backend: Backend, _: Backend) -> None:
    bench = Bench(backend, SEED)
    x = bench.normal(3, 64, dtype=BF16)
    y, weight = bench.empty(3, 64, dtype=BF16), bench.normal(64)
    with backend.record() as plan:
        plan.add(ops.RmsNorm(x=x, y=y, weight=weight, live=bench.ints([3]), eps=1e-6))
    plan.run()
    first = y.read()
    plan.capture()
    values = x.read()
    x.write(values[::-1].copy())
    for _replay in range(3):
        plan.run()
    assert np.array_equal(y.read(), first[::-1])


def choices_are_the_references(backend: Backend, reference: Backend) -> None:
    random = np.random.default_rng(SEED)
    for vocabulary in (37, 9001, 50257):
        logits = (random.standard_normal((8, vocabulary)) * 4).astype(np.float32)
        slots = []
        for _ in range(8):
            settings = {
                "temperature": random.choice([0.0, 0.3, 1.0, 2.0]),
                "top_k": int(random.choice([0, 1, 20, 200])),
                "top_p": random.choice([1.0, 0.95, 0.4]),
                "min_p": random.choice([0.0, 0.05]),
                "seed": int(random.integers(1 << 62)),
                "logprobs": int(random.choice([-1, 0, 5])),
            }
            slots.append(Slot(settings=settings))
        pair = [Sampler(b, logits, slots, live=vocabulary - 3) for b in (reference, backend)]
        wanted, found = (s.run() for s in pair)
        assert found == wanted, vocabulary
        assert np.array_equal(pair[1].top_id.read(), pair[0].top_id.read())


def calls_by_one_launch_give_what_they_give_apart(backend: Backend, reference: Backend) -> None:
    groups: list[Callable[[Backend, bool], Found]] = [
        lambda b, apart: combine_then_gate(b, apart=apart),
        *(
            lambda b, apart, sizes=sizes, kind=kind, lengths=lengths: product_norm_product(
                b, lengths, kind, sizes, apart=apart
            )
            for sizes in (WIDE, FEW)
            for kind in ("linear", "gate_up", "conv")
            for lengths in ([1], [1, 2, 1, 0, 3], [1] * 13, [2] * 11, [1] * 18 + [2] * 20)
        ),
        *(
            lambda b, apart, kind=kind: product_norm_product(b, [1] * 9, kind, HALF, apart=apart)
            for kind in ("linear", "gate_up")
        ),
    ]
    for group in groups:
        together, apart, wanted = (
            group(backend, False),
            group(backend, True),
            group(reference, True),
        )
        # A norm inside a product rounds what isn't scaled yet.
        for name, values in wanted.values.items():
            for found in (together, apart):
                if name in found.values:
                    error = np.abs(found.values[name] - values).max() / np.abs(values).max()
                    assert error < 2e-2, (name, error)


def rows_of_a_normed_product_do_not_depend_on_their_company(backend: Backend, _: Backend) -> None:
    for sizes, kind in product((WIDE, FEW), ("linear", "gate_up", "conv")):
        everything = product_norm_product(backend, [1] * 60, kind, sizes, apart=False).values
        for rows in (1, 7, 8, 9, 33):
            found = product_norm_product(backend, [1] * rows, kind, sizes, apart=False).values
            for name in found.keys() - {"state"}:
                same = np.array_equal(found[name], everything[name][:rows])
                assert same, (sizes, kind, name, rows)


STEPS: tuple[tuple[list[int], dict[str, int]], ...] = (
    ([1], {}),
    ([1] * 9, {"k_heads": 2}),
    ([1, 3, 1, 0, 2], {"k_heads": 2, "head_map": 1}),
    ([2, 1], {"value_dim": 36, "key_dim": 40}),
    ([1, 2], {"value_dim": 4, "key_dim": 8}),
    ([2], {"value_dim": 160, "key_dim": 64}),
)
"""Rows of sequences and a delta net's shape; the last has more columns a head than a block."""


def a_normed_step_gives_what_step_and_norm_give(backend: Backend, reference: Backend) -> None:
    for dtype in (BF16, F16, F32):
        for lengths, shape in STEPS:
            found, plain, wanted = (
                step_then_norm(b, lengths, dtype, apart=apart, **shape).values
                for b, apart in ((backend, False), (backend, True), (reference, True))
            )
            for name, values in wanted.items():
                assert np.array_equal(found[name], plain[name]), (dtype, lengths, shape, name)
                error = np.abs(found[name] - values).max() / np.abs(values).max()
                limit = {BF16: 8e-3, F16: 1e-3, F32: 2e-5}[dtype]
                assert error < limit, (dtype, lengths, shape, name, error)


def rows_of_a_normed_step_do_not_depend_on_their_company(backend: Backend, _: Backend) -> None:
    everything = step_then_norm(backend, [1] * 9, apart=False).values
    for rows in (1, 2, 8):
        found = step_then_norm(backend, [1] * rows, apart=False).values
        for name in ("gated", "y"):
            assert np.array_equal(found[name], everything[name][:rows]), (name, rows)


def device_memory_comes_back(backend: Backend, _: Backend) -> None:
    before = backend.memory().allocated
    for _round in range(3):
        buffer = backend.allocate(1 << 20, dtype=Dtype.I8)
        assert not buffer.read().any(), "memory is zeroed"
        assert backend.memory().allocated == before + (1 << 20)
        del buffer
        assert backend.memory().allocated == before


CHECKS: tuple[Callable[[Backend, Backend], None], ...] = (
    rows_of_a_product_do_not_depend_on_their_company,
    rows_of_a_chunk_do_not_depend_on_their_number,
    attention_does_not_depend_on_company,
    attention_does_not_depend_on_how_a_prompt_is_cut,
    a_delta_net_does_not_depend_on_how_a_prompt_is_cut,
    calls_by_one_launch_give_what_they_give_apart,
    rows_of_a_normed_product_do_not_depend_on_their_company,
    a_normed_step_gives_what_step_and_norm_give,
    rows_of_a_normed_step_do_not_depend_on_their_company,
    a_graph_replays_what_buffers_hold_then,
    choices_are_the_references,
    device_memory_comes_back,
)
# What an emulation would take minutes for.
LARGE: tuple[Callable[[Backend, Backend], None], ...] = (
    rows_of_a_large_chunk_do_not_depend_on_their_number,
)
