"""One case an op and shape: it serves every backend, for correctness and for row independence.

To add a case: write a builder that takes a Bench and returns the op, and put it into CASES. The
builder runs once a backend with the same random numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Activations, Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.declaration import Op, Tensor
from flatwake_kernels.dtype import Dtype
from op_bench import FLOATS, QUANTS, SEED, UNWRITTEN, Bench, decode, sequence_rows

F32, F16, BF16, I32 = Dtype.F32, Dtype.F16, Dtype.BF16, Dtype.I32


@dataclass(frozen=True)
class Case:
    """`tolerance` is of the largest magnitude that the reference wrote."""

    name: str
    build: Callable[[Bench], Op]
    tolerance: float = 2e-6

    @property
    def seed(self) -> int:
        return SEED ^ zlib.crc32(self.name.encode())


def run(case: Case, backend: Backend) -> dict[str, np.ndarray]:
    """Outputs of the case's op, by name; rows that an op may skip are left out."""
    bench = Bench(backend, case.seed)
    return run_op(case.build(bench), bench)


def run_op(op: Op, bench: Bench) -> dict[str, np.ndarray]:
    """Run one op through a plan of its own; see `run`."""
    with bench.backend.record() as plan:
        plan.add(op)
    plan.run()
    bench.check_guards()
    return outputs(op)


def outputs(op: Op) -> dict[str, np.ndarray]:
    found = {}
    for name, kind in op.fields.items():
        value = op.values.get(name)
        if isinstance(kind, Tensor) and kind.access != "in" and isinstance(value, Buffer):
            array = decode(value)
            live = op.values.get("live")
            if isinstance(live, Buffer) and kind.shape[0] == "rows":
                array = array[: int(live.read()[0])]
            found[name] = array
    return found


def compare(case: Case, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Integers exactly, floats within the case's tolerance. Says where and by how much."""
    assert found.keys() == wanted.keys()
    for name, right in wanted.items():
        value = found[name]
        if right.dtype.kind != "f":
            assert np.array_equal(value, right), f"{case.name}: {name} (seed {case.seed})"
            continue
        value, right = value.astype(np.float64), right.astype(np.float64)
        assert np.isfinite(right).all(), f"{case.name}: the reference's {name} is not finite"
        error = np.abs(value - right)
        error[np.isnan(error)] = np.inf
        if not error.size:
            continue
        written = np.abs(right[right != UNWRITTEN])
        limit = case.tolerance * max(float(written.max(initial=0)), 1e-30)
        at = np.unravel_index(int(error.argmax()), error.shape)
        assert error.max() <= limit, (
            f"{case.name}: {name}{list(map(int, at))} is {value[at]:.8g}, wanted {right[at]:.8g}, "
            f"off by {error.max():.3g}, at most {limit:.3g} (seed {case.seed})"
        )


def rounding(dtype: Dtype, exact: float = 2e-6) -> float:
    """The tolerance of results rounded to `dtype`: one unit in the last place."""
    return {F32: exact, F16: 1e-3, BF16: 8e-3}[dtype]


# Gather


def embedding(b: Bench, dtype: Dtype, weight: Dtype, rows: int = 7, live: int = 5) -> Op:
    width = 256
    table = b.layer(37, width, weight)
    return ops.Embedding(
        y=b.empty(rows, width, dtype=dtype),
        row_id=b.ints(b.random.integers(0, 37, rows)),
        live=b.ints([live]),
        table=table,
    )


def gather_rows(b: Bench, dtype: Dtype) -> Op:
    x = b.normal(9, 33, dtype=dtype)
    index = b.ints([3, -1, 0, 8, 8])
    return ops.GatherRows(x=x, y=b.empty(5, 33, dtype=dtype), index=index)


# Linear


def linear(
    b: Bench, *, rows: int, live: int, inputs: int, formats: tuple[Dtype, ...],
    outputs: int = 33, dtype: Dtype = F32, output_dtype: Dtype = F32, bias: bool = False,
    residual: bool = False, activations: Activations = "float", permuted: bool = False,
) -> Op:  # fmt: skip
    weight = b.layer(outputs, inputs, *formats, activations=activations, permuted=permuted)
    total = outputs * len(formats)
    y = b.empty(rows, total, dtype=output_dtype)
    if residual:
        y = b.rows(live, rows, total, dtype=output_dtype)
    return ops.Linear(
        x=b.rows(live, rows, inputs, dtype=dtype),
        y=y,
        weight=weight,
        bias=b.normal(total) if bias else None,
        residual=y if residual else None,
        live=b.ints([live]),
    )


def gate_up_silu(
    b: Bench, *, rows: int, live: int, inputs: int, outputs: int, weight: Dtype,
    dtype: Dtype = F32, activations: Activations = "float",
) -> Op:  # fmt: skip
    return ops.GateUpSilu(
        x=b.rows(live, rows, inputs, dtype=dtype),
        y=b.empty(rows, outputs, dtype=dtype),
        weight=b.layer(outputs, inputs, weight, weight, activations=activations),
        live=b.ints([live]),
    )


def _linear_cases() -> Iterator[Case]:
    for format_ in (*FLOATS, *QUANTS):
        for activations in ("float", "int8") if format_.quantised else ("float",):
            for rows, live, inputs in ((1, 1, 256), (8, 5, 512), (3, 3, 1536), (64, 33, 256)):
                yield Case(
                    f"linear-{format_.name}-{activations}-{live}of{rows}x{inputs}",
                    partial(linear, rows=rows, live=live, inputs=inputs, formats=(format_,),
                            activations=activations),
                    5e-6,
                )  # fmt: skip
    for format_ in (F32, Dtype.Q4_0, Dtype.Q4_1, Dtype.Q8_0):
        for inputs in (32, 96, 576):
            yield Case(
                f"linear-{format_.name}-narrow-{inputs}",
                partial(linear, rows=16, live=16, inputs=inputs, formats=(format_,), outputs=1,
                        activations="int8"),
                5e-6,
            )  # fmt: skip
    for dtype in (F16, BF16):
        yield Case(
            f"linear-from-{dtype.name}",
            partial(linear, rows=4, live=3, inputs=256, formats=(BF16,), dtype=dtype,
                    output_dtype=dtype, bias=True, residual=True),
            rounding(dtype),
        )  # fmt: skip
    yield Case("linear-odd-columns", partial(linear, rows=4, live=4, inputs=37, formats=(F32, F16)))
    for activations in ("float", "int8"):
        mixed = (Dtype.Q4_K, Dtype.Q6_K, F32, Dtype.Q5_K, Dtype.Q8_0)
        yield Case(
            f"linear-segments-{activations}",
            partial(linear, rows=8, live=6, inputs=512, formats=mixed, outputs=19, bias=True,
                    residual=True, activations=activations, permuted=True),
            5e-6,
        )  # fmt: skip
    for weight in (F32, BF16, *QUANTS):
        for activations in ("float", "int8"):
            yield Case(
                f"gate-up-{weight.name}-{activations}",
                partial(gate_up_silu, rows=8, live=6, inputs=512, outputs=45, weight=weight,
                        activations=activations),
                1e-5,
            )  # fmt: skip
    yield Case(
        "gate-up-chunk",
        partial(gate_up_silu, rows=128, live=100, inputs=256, outputs=48, weight=Dtype.Q4_1,
                activations="int8"),
        1e-5,
    )  # fmt: skip


# Norms


def rms_norm(b: Bench, width: int, dtype: Dtype, offset: float) -> Op:
    return ops.RmsNorm(
        x=b.rows(3, 5, width, dtype=dtype),
        y=b.empty(5, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([3]),
        eps=1e-5,
        weight_offset=offset,
    )


def add_rms_norm(b: Bench, width: int, dtype: Dtype) -> Op:
    return ops.AddRmsNorm(
        x=b.rows(4, 5, width, dtype=dtype),
        residual=b.rows(4, 5, width, dtype=dtype),
        y=b.empty(5, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([4]),
        eps=1e-6,
        weight_offset=1.0,
    )


def gated_rms_norm(b: Bench, dtype: Dtype) -> Op:
    heads, width, stride = 3, 40, 130
    return ops.GatedRmsNorm(
        x=b.rows(2, 3, heads, width, dtype=dtype),
        gate=b.rows(2, 3, stride, dtype=dtype),
        y=b.empty(3, heads, width, dtype=dtype),
        weight=b.normal(width),
        live=b.ints([2]),
        gate_offset=7,
        eps=1e-6,
    )


# Attention

BLOCKS, TABLE = 64, 24


def paged(b: Bench, lengths: list[list[int]], rows: int) -> tuple[dict[str, Buffer], np.ndarray]:
    """Row buffers, and a table of `[rows, TABLE]` blocks in random order; unused entries are 0."""
    arrays = sequence_rows(lengths, rows)
    table = np.zeros((rows, TABLE), np.int32)
    order = b.random.permutation(np.arange(1, BLOCKS))
    for sequence, seen in enumerate(lengths):
        count = -(-max(seen, default=0) // ops.BLOCK_TOKENS)
        table[sequence, :count], order = order[:count], order[count:]
    buffers = {name: b.ints(values) for name, values in arrays.items()}
    return {**buffers, "block_table": b.ints(table)}, table


def pool(
    b: Bench, kv_heads: int, head_dim: int, dtype: Dtype, lengths: list[list[int]],
    table: np.ndarray,
) -> Buffer:  # fmt: skip
    """KV whose positions that nobody sees are NaN; block 0 is zero."""
    shape = (2, BLOCKS, kv_heads, ops.BLOCK_TOKENS, head_dim)
    values = b.random.standard_normal(shape, np.float32)
    seen = np.zeros((BLOCKS, ops.BLOCK_TOKENS), bool)
    for sequence, row_lengths in enumerate(lengths):
        for position in range(max(row_lengths, default=0)):
            block, offset = divmod(position, ops.BLOCK_TOKENS)
            seen[table[sequence, block], offset] = True
    values[~np.broadcast_to(seen[None, :, None, :, None], shape)] = np.nan
    values[:, 0] = 0
    return b.given(values, dtype)


DECODE = ("row_length", "first_row", "row_count", "block_table")


def attention_decode(
    b: Bench, lengths: list[list[int]], rows: int, *, heads: int = 6, kv_heads: int = 2,
    head_dim: int = 64, dtype: Dtype = F32, kv_dtype: Dtype = F32, splits: int = 4,
    split_positions: int = 64,
) -> Op:  # fmt: skip
    where, table = paged(b, lengths, rows)
    return ops.AttentionDecode(
        q=b.rows(sum(map(len, lengths)), rows, heads, head_dim, dtype=dtype),
        kv=pool(b, kv_heads, head_dim, kv_dtype, lengths, table),
        partial=b.empty(rows, heads, splits, head_dim),
        partial_ml=b.empty(rows, heads, splits, 2),
        split_positions=split_positions,
        scale=head_dim**-0.5,
        **{n: where[n] for n in DECODE},
    )


def attention_combine(b: Bench, dtype: Dtype) -> Op:
    lengths, splits = np.array([1, 64, 65, 300, 0], np.int32), 4
    partial_ml = np.abs(b.random.standard_normal((5, 3, splits, 2), np.float32))
    return ops.AttentionCombine(
        partial=b.normal(5, 3, splits, 40),
        partial_ml=b.given(partial_ml),
        y=b.empty(5, 3, 40, dtype=dtype),
        row_length=b.ints(lengths),
        split_positions=64,
    )


def attention_prefill(
    b: Bench, lengths: list[list[int]], rows: int, *, heads: int = 6, kv_heads: int = 2,
    head_dim: int = 64, dtype: Dtype = F32, kv_dtype: Dtype = F32,
) -> Op:  # fmt: skip
    where, table = paged(b, lengths, rows)
    return ops.AttentionPrefill(
        q=b.rows(sum(map(len, lengths)), rows, heads, head_dim, dtype=dtype),
        kv=pool(b, kv_heads, head_dim, kv_dtype, lengths, table),
        y=b.empty(rows, heads, head_dim, dtype=dtype),
        scale=head_dim**-0.5,
        **{n: where[n] for n in DECODE},
    )


def output_gate(b: Bench, dtype: Dtype) -> Op:
    return ops.OutputGate(
        x=b.rows(3, 4, 75, dtype=dtype),
        gate=b.rows(3, 4, 160, dtype=dtype),
        y=b.empty(4, 75, dtype=dtype),
        live=b.ints([3]),
        gate_offset=80,
    )


def rope_write(
    b: Bench, *, heads: int = 6, kv_heads: int = 2, head_dim: int = 64, half: int = 32,
    pairing: int = 0, normed: bool = False, dtype: Dtype = F32, kv_dtype: Dtype = F32,
) -> Op:  # fmt: skip
    lengths = [[1], [16, 17, 18], [], [300]]
    rows, live = 8, 5
    where, _ = paged(b, lengths, rows)
    context, packed = 384, (heads + 2 * kv_heads) * head_dim
    angles = b.random.uniform(-3, 3, (context, half)).astype(np.float32)
    kv = np.full((2, BLOCKS, kv_heads, ops.BLOCK_TOKENS, head_dim), UNWRITTEN, np.float32)
    kv[:, 0] = 0
    return ops.QkNormRopeWrite(
        projection=b.rows(live, rows, packed + 11, dtype=dtype),
        q=b.empty(rows, heads, head_dim, dtype=dtype),
        kv=b.given(kv, kv_dtype),
        q_norm=b.normal(head_dim) if normed else None,
        k_norm=b.normal(head_dim) if normed else None,
        rope=b.given(np.stack([np.cos(angles), np.sin(angles)], axis=1)),
        live=b.ints([live]),
        q_offset=3,
        k_offset=3 + heads * head_dim,
        v_offset=3 + (heads + kv_heads) * head_dim,
        pairing=pairing,
        eps=1e-6,
        weight_offset=1.0 if normed else 0.0,
        **{n: where[n] for n in ("row_position", "row_length", "row_sequence", "block_table")},
    )


def rope_write_outside(b: Bench) -> Op:
    """Positions past the table, blocks past the pool and block 0: nothing is written."""
    kv = np.full((2, 4, 1, ops.BLOCK_TOKENS, 32), UNWRITTEN, np.float32)
    kv[:, 0] = 0
    angles = b.random.uniform(-3, 3, (64, 16)).astype(np.float32)
    return ops.QkNormRopeWrite(
        projection=b.normal(4, 96),
        q=b.empty(4, 1, 32),
        kv=b.given(kv),
        rope=b.given(np.stack([np.cos(angles), np.sin(angles)], axis=1)),
        row_position=b.ints([40, 3, 20, 17]),
        row_length=b.ints([41, 4, 21, 18]),
        row_sequence=b.ints([0, 1, 1, 0]),
        block_table=b.ints([[1, 2], [0, 99]]),
        live=b.ints([4]),
        k_offset=32,
        v_offset=64,
    )


LENGTHS = [[1], [16], [15, 16, 17, 18], [], [257], [130]]


def _attention_cases() -> Iterator[Case]:
    for dtype, kv_dtype in ((F32, F32), (F32, F16), (F32, BF16), (BF16, BF16), (F16, F16)):
        types = {"dtype": dtype, "kv_dtype": kv_dtype}
        name = f"{dtype.name}-{kv_dtype.name}"
        yield Case(f"attention-decode-{name}", partial(
            attention_decode, lengths=LENGTHS, rows=16, **types), 5e-6)  # fmt: skip
        yield Case(f"attention-prefill-{name}", partial(
            attention_prefill, lengths=[list(range(65, 129))], rows=64, **types),
            rounding(dtype, 5e-6))  # fmt: skip
        yield Case(f"rope-write-{name}", partial(rope_write, **types),
                   max(rounding(dtype), rounding(kv_dtype)))  # fmt: skip
        yield Case(f"rope-write-normed-{name}", partial(
            rope_write, half=16, normed=True, **types),
            max(rounding(dtype), rounding(kv_dtype)))  # fmt: skip
    for heads, kv_heads, head_dim in ((1, 1, 32), (9, 3, 64), (8, 1, 80), (4, 2, 256), (5, 5, 36)):
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        yield Case(f"attention-decode-{heads}-{kv_heads}x{head_dim}", partial(
            attention_decode, lengths=LENGTHS, rows=8, **shape), 5e-6)  # fmt: skip
        yield Case(f"attention-prefill-{heads}-{kv_heads}x{head_dim}", partial(
            attention_prefill, lengths=[list(range(1, 38))], rows=64, **shape), 5e-6)  # fmt: skip
    for dtype in (BF16, F16):  # of whole matrix units
        for heads, kv_heads, head_dim in ((6, 3, 64), (7, 1, 128), (8, 2, 256)):
            shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
            yield Case(f"attention-prefill-{dtype.name}-{heads}-{kv_heads}x{head_dim}", partial(
                attention_prefill, lengths=[list(range(65, 103)), [], [1, 2], [300, 301]], rows=48,
                dtype=dtype, kv_dtype=dtype, **shape), rounding(dtype, 5e-6))  # fmt: skip
    yield Case("attention-decode-one-split", partial(
        attention_decode, lengths=[[300], [7]], rows=2, splits=1), 5e-6)  # fmt: skip
    yield Case("attention-decode-many-splits", partial(
        attention_decode, lengths=[[300], [7]], rows=2, splits=32, split_positions=16),
        5e-6)  # fmt: skip
    for dtype in FLOATS:
        yield Case(f"attention-combine-{dtype.name}", partial(attention_combine, dtype=dtype),
                   rounding(dtype))  # fmt: skip
        yield Case(f"output-gate-{dtype.name}", partial(output_gate, dtype=dtype),
                   rounding(dtype))  # fmt: skip
    yield Case("rope-write-pairs", partial(rope_write, pairing=1))
    yield Case("rope-write-odd", partial(rope_write, heads=3, kv_heads=3, head_dim=36, half=9))
    yield Case("rope-write-outside", rope_write_outside)


# Recurrent


def conv(b: Bench, op: type[ops.ConvStep], lengths: list[int], rows: int, dtype: Dtype) -> Op:
    channels, taps, slots = 37, 4, 12
    state = b.random.standard_normal((slots, channels, taps - 1), np.float32)
    return op(
        x=b.rows(sum(lengths), rows, channels + 9, dtype=dtype),
        y=b.empty(rows, channels, dtype=dtype),
        weight=b.normal(channels, taps),
        offset=5,
        **_slots(b, state, lengths, rows),
    )


def gdn(
    b: Bench, op: type[ops.GdnStep], lengths: list[int], rows: int, *, head_map: int = 0,
    k_heads: int = 2, v_heads: int = 4, key_dim: int = 32, value_dim: int = 48,
    dtype: Dtype = F32,
) -> Op:  # fmt: skip
    state = b.random.standard_normal((12, v_heads, key_dim, value_dim), np.float32)
    live = sum(lengths)
    return op(
        qkv=b.rows(live, rows, 2 * k_heads * key_dim + v_heads * value_dim, dtype=dtype),
        ab=b.rows(live, rows, 2 * v_heads + 3, dtype=dtype),
        negative_a=b.given(-np.abs(b.random.standard_normal(v_heads)) - 0.05),
        dt_bias=b.normal(v_heads),
        y=b.empty(rows, v_heads, value_dim, dtype=dtype),
        k_heads=k_heads,
        a_offset=2,
        b_offset=3 + v_heads,
        head_map=head_map,
        **_slots(b, state, lengths, rows),
    )


def _slots(b: Bench, state: np.ndarray, lengths: list[int], rows: int) -> dict[str, Buffer]:
    """Sequence i reads slot i + 1; its rows write there too, but the second to slot 10."""
    state[0] = 0
    first_row, row_count = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    slot_in, slot_out = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    row = 0
    for sequence, count in enumerate(lengths):
        first_row[sequence], row_count[sequence] = row, count
        slot_in[sequence] = sequence + 1
        slot_out[row : row + count] = sequence + 1
        if sequence == 1 and count:
            slot_out[row + count - 1] = 10
        row += count
    return {
        "state": b.given(state),
        "first_row": b.ints(first_row),
        "row_count": b.ints(row_count),
        "slot_in": b.ints(slot_in),
        "slot_out": b.ints(slot_out),
    }


def slot_copy(b: Bench) -> Op:
    state = b.ints(b.random.integers(-(2**31), 2**31, (6, 35)))
    return ops.SlotCopy(state=state, source=b.ints([1, 2, 3, 5]), target=b.ints([4, 0, -1, 1]))


def slot_zero(b: Bench) -> Op:
    state = b.ints(b.random.integers(-(2**31), 2**31, (6, 35)))
    return ops.SlotZero(state=state, target=b.ints([4, 0, -1, 5]))


def _recurrent_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        yield Case(f"conv-step-{dtype.name}", partial(
            conv, op=ops.ConvStep, lengths=[1, 5, 0, 1], rows=8, dtype=dtype),
            rounding(dtype))  # fmt: skip
        yield Case(f"gdn-step-{dtype.name}", partial(
            gdn, op=ops.GdnStep, lengths=[1, 5, 0, 1], rows=8, dtype=dtype),
            rounding(dtype, 1e-5))  # fmt: skip
        yield Case(f"gdn-chunk-{dtype.name}", partial(
            gdn, op=ops.GdnChunk, lengths=[150], rows=256, dtype=dtype),
            rounding(dtype, 2e-5))  # fmt: skip
    yield Case("conv-chunk", partial(
        conv, op=ops.ConvChunk, lengths=[19], rows=32, dtype=F32))  # fmt: skip
    yield Case("conv-chunk-short", partial(
        conv, op=ops.ConvChunk, lengths=[2], rows=16, dtype=F32))  # fmt: skip
    yield Case("gdn-step-tiled", partial(
        gdn, op=ops.GdnStep, lengths=[2, 1], rows=3, head_map=1), 1e-5)  # fmt: skip
    yield Case("gdn-step-128", partial(
        gdn, op=ops.GdnStep, lengths=[1], rows=1, k_heads=1, v_heads=2, key_dim=128,
        value_dim=128), 1e-5)  # fmt: skip
    yield Case("gdn-chunk-tiled", partial(
        gdn, op=ops.GdnChunk, lengths=[65], rows=128, head_map=1), 2e-5)  # fmt: skip
    yield Case("gdn-chunk-128", partial(
        gdn, op=ops.GdnChunk, lengths=[64], rows=64, k_heads=1, v_heads=2, key_dim=128,
        value_dim=128), 2e-5)  # fmt: skip
    yield Case("slot-copy", slot_copy)
    yield Case("slot-zero", slot_zero)


# Ranks


def all_reduce(b: Bench) -> Op:
    return ops.AllReduce(x=b.rows(2, 3, 17), live=b.ints([2]))


def _simple_cases() -> Iterator[Case]:
    for dtype in FLOATS:
        for weight in (F32, F16, BF16, *QUANTS):
            yield Case(f"embedding-{weight.name}-{dtype.name}", partial(
                embedding, dtype=dtype, weight=weight), rounding(dtype, 0))  # fmt: skip
        yield Case(f"gather-rows-{dtype.name}", partial(gather_rows, dtype=dtype), 0)
        for width in (1, 37, 576):
            yield Case(f"rms-norm-{dtype.name}-{width}", partial(
                rms_norm, width=width, dtype=dtype, offset=1.0), rounding(dtype))  # fmt: skip
        yield Case(f"add-rms-norm-{dtype.name}", partial(
            add_rms_norm, width=75, dtype=dtype), rounding(dtype))  # fmt: skip
        yield Case(f"gated-rms-norm-{dtype.name}", partial(
            gated_rms_norm, dtype=dtype), rounding(dtype))  # fmt: skip
    yield Case("all-reduce", all_reduce, 0)


CASES: tuple[Case, ...] = (
    *_simple_cases(),
    *_linear_cases(),
    *_attention_cases(),
    *_recurrent_cases(),
)
