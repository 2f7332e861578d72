"""Every op, declared once: what it computes, its parameters, and the file of its reference.

Rows. A step has `rows` token positions; `live` (a device int32) says how many are real: the others
fill a bucket, have `row_length` 0, and are neither read nor written by ops that touch KV or state.
Ops on rows alone may skip them. `sequences` entries describe ranges of rows: `first_row`,
`row_count` (0 for an unused entry), `block_table`, `slot_in`, `sample_row` (-1: none).

Packed projections. `q_offset`, `gate_offset` and so on count elements inside a row of a projection
whose rows are `*_stride` elements apart.

Numbers follow the order of declaration: new ops are appended.
"""

from __future__ import annotations

import ctypes

from flatwake_kernels.declaration import (
    Float,
    Handle,
    Int,
    Op,
    Records,
    Size,
    Type,
    read,
    update,
    write,
)
from flatwake_kernels.dtype import Dtype

BLOCK_TOKENS = 16
"""Positions in one KV block."""
MAX_SPLITS = 32
"""The most parts that a decode row's KV is divided into."""

F32, I32 = Dtype.F32, Dtype.I32


class Sampling(ctypes.Structure):
    """How one sequence samples. An array of these, one a sampling slot, lies on the device."""

    _fields_ = (
        ("seed", ctypes.c_int64),
        ("temperature", ctypes.c_float),  # below 1e-5: greedy
        ("top_p", ctypes.c_float),  # 1: off
        ("min_p", ctypes.c_float),  # 0: off
        ("repetition_penalty", ctypes.c_float),  # 1: off; prompt and answer
        ("presence_penalty", ctypes.c_float),  # answer only
        ("frequency_penalty", ctypes.c_float),  # answer only
        ("top_k", ctypes.c_int32),  # 0: off
        ("ban_below", ctypes.c_int32),  # ban_id holds while row_length is below this
        ("ban_count", ctypes.c_int32),
        ("bias_count", ctypes.c_int32),
        ("logprobs", ctypes.c_int32),  # top entries wanted; -1: none at all
        ("flags", ctypes.c_int32),  # SAMPLE_*
    )


SAMPLE_PENALTIES = 1
"""`counts` of this slot is kept and read."""
SAMPLE_MASK = 2
"""`mask` of this slot is read."""
COUNT_PROMPT = 1 << 30
"""Set in a count when the id stands in the prompt; the rest counts it in the answer."""

RECORDS: tuple[tuple[str, type[ctypes.Structure]], ...] = (("fw_sampling", Sampling),)


class Embedding(Op, reference="gather"):
    """y[r] = table[row_id[r]]; the table is a prepared linear layer, often the head's own."""

    y = write("rows", "width", dtype="dtype")
    row_id = read("rows", dtype=I32)
    live = read(1, dtype=I32)
    table = Handle("[vocabulary, width]")
    rows = Size()
    width = Size()
    dtype = Type()


class GatherRows(Op, reference="gather"):
    """y[i] = x[index[i]]; a negative index gives zeros."""

    x = read("rows", "width", dtype="dtype")
    y = write("count", "width", dtype="dtype")
    index = read("count", dtype=I32)
    rows = Size()
    count = Size()
    width = Size()
    dtype = Type()


class Linear(Op, reference="linear"):
    """y = x Wᵀ (+ bias) (+ residual). `residual` may be y itself."""

    x = read("rows", "inputs", dtype="dtype")
    y = write("rows", "outputs", dtype="output_dtype")
    weight = Handle("[outputs, inputs]")
    bias = read("outputs", dtype=F32, optional=True)
    residual = read("rows", "outputs", dtype="output_dtype", optional=True)
    live = read(1, dtype=I32)
    rows = Size()
    inputs = Size()
    outputs = Size()
    dtype = Type()
    output_dtype = Type()


class GateUpSilu(Op, reference="linear"):
    """y = silu(x Gᵀ) · (x Uᵀ); the weight's rows are gate, then up."""

    x = read("rows", "inputs", dtype="dtype")
    y = write("rows", "outputs", dtype="dtype")
    weight = Handle("[2 outputs, inputs]")
    live = read(1, dtype=I32)
    rows = Size()
    inputs = Size()
    outputs = Size()
    dtype = Type()


class RmsNorm(Op, reference="norm"):
    """y = x / sqrt(mean(x²) + eps) · (weight + weight_offset), in fp32."""

    x = read("rows", "width", dtype="dtype")
    y = write("rows", "width", dtype="dtype")
    weight = read("width", dtype=F32)
    live = read(1, dtype=I32)
    rows = Size()
    width = Size()
    dtype = Type()
    eps = Float()
    weight_offset = Float(0.0, "1 where a checkpoint stores w of 1 + w")


class AddRmsNorm(Op, reference="norm"):
    """residual += x, rounded to its type; y = rms_norm(residual)."""

    x = read("rows", "width", dtype="dtype")
    residual = update("rows", "width", dtype="dtype")
    y = write("rows", "width", dtype="dtype")
    weight = read("width", dtype=F32)
    live = read(1, dtype=I32)
    rows = Size()
    width = Size()
    dtype = Type()
    eps = Float()
    weight_offset = Float(0.0)


class GatedRmsNorm(Op, reference="norm"):
    """y = rms_norm(x) · weight · silu(gate), each head alone; the gate lies in a projection."""

    x = read("rows", "heads", "width", dtype="dtype")
    gate = read("rows", "gate_stride", dtype="dtype")
    y = write("rows", "heads", "width", dtype="dtype")
    weight = read("width", dtype=F32)
    live = read(1, dtype=I32)
    rows = Size()
    heads = Size()
    width = Size()
    gate_stride = Size()
    gate_offset = Int(0)
    dtype = Type()
    eps = Float()


class QkNormRopeWrite(Op, reference="rope"):
    """Norm (optional) and rotate q and k of a packed projection; q goes out, k and v into the KV.

    `rope[p]` holds the cosines, then the sines of position p. `pairing` 0 rotates (i, i + d/2)
    (NeoX), 1 rotates (2i, 2i + 1). A row of `row_length` 0 writes nothing, nor does a position
    whose block lies outside of the table or the pool.
    """

    projection = read("rows", "stride", dtype="dtype")
    q = write("rows", "heads", "head_dim", dtype="dtype")
    kv = update(2, "blocks", "kv_heads", BLOCK_TOKENS, "head_dim", dtype="kv_dtype")
    q_norm = read("head_dim", dtype=F32, optional=True)
    k_norm = read("head_dim", dtype=F32, optional=True)
    rope = read("context", 2, "rotary_half", dtype=F32)
    row_position = read("rows", dtype=I32)
    row_length = read("rows", dtype=I32)
    row_sequence = read("rows", dtype=I32)
    block_table = read("sequences", "table_blocks", dtype=I32)
    live = read(1, dtype=I32)
    rows = Size()
    stride = Size()
    heads = Size()
    kv_heads = Size()
    head_dim = Size()
    rotary_half = Size()
    context = Size()
    blocks = Size()
    sequences = Size()
    table_blocks = Size()
    q_offset = Int(0)
    k_offset = Int()
    v_offset = Int()
    pairing = Int(0)
    dtype = Type()
    kv_dtype = Type()
    eps = Float(0.0)
    weight_offset = Float(0.0)


class AttentionDecode(Op, reference="attention"):
    """Partial attention of each row over each split of the positions that it sees.

    A row of length n is divided into parts of max(split_positions, ceil(n / splits) rounded up to
    16) positions: a function of n alone. `partial` holds Σ exp(s - m) v, `partial_ml` m and
    Σ exp(s - m); parts past the row's own count are not written.
    """

    q = read("rows", "heads", "head_dim", dtype="dtype")
    kv = read(2, "blocks", "kv_heads", BLOCK_TOKENS, "head_dim", dtype="kv_dtype")
    partial = write("rows", "heads", "splits", "head_dim", dtype=F32)
    partial_ml = write("rows", "heads", "splits", 2, dtype=F32)
    row_length = read("rows", dtype=I32)
    first_row = read("sequences", dtype=I32)
    row_count = read("sequences", dtype=I32)
    block_table = read("sequences", "table_blocks", dtype=I32)
    rows = Size()
    heads = Size()
    kv_heads = Size()
    head_dim = Size()
    blocks = Size()
    sequences = Size()
    table_blocks = Size()
    splits = Size()
    split_positions = Int(256)
    dtype = Type()
    kv_dtype = Type()
    scale = Float()


class AttentionCombine(Op, reference="attention"):
    """y = the splits of each row joined, in the order of the splits. Rows of length 0 give 0."""

    partial = read("rows", "heads", "splits", "head_dim", dtype=F32)
    partial_ml = read("rows", "heads", "splits", 2, dtype=F32)
    y = write("rows", "heads", "head_dim", dtype="dtype")
    row_length = read("rows", dtype=I32)
    rows = Size()
    heads = Size()
    head_dim = Size()
    splits = Size()
    split_positions = Int(256)
    dtype = Type()


class AttentionPrefill(Op, reference="attention"):
    """y = causal attention of a chunk's rows; row r sees `row_length[r]` positions."""

    q = read("rows", "heads", "head_dim", dtype="dtype")
    kv = read(2, "blocks", "kv_heads", BLOCK_TOKENS, "head_dim", dtype="kv_dtype")
    y = write("rows", "heads", "head_dim", dtype="dtype")
    row_length = read("rows", dtype=I32)
    first_row = read("sequences", dtype=I32)
    row_count = read("sequences", dtype=I32)
    block_table = read("sequences", "table_blocks", dtype=I32)
    rows = Size()
    heads = Size()
    kv_heads = Size()
    head_dim = Size()
    blocks = Size()
    sequences = Size()
    table_blocks = Size()
    dtype = Type()
    kv_dtype = Type()
    scale = Float()


class OutputGate(Op, reference="attention"):
    """y = x · sigmoid(gate); the gate lies in a projection. y may be x."""

    x = read("rows", "width", dtype="dtype")
    gate = read("rows", "gate_stride", dtype="dtype")
    y = write("rows", "width", dtype="dtype")
    live = read(1, dtype=I32)
    rows = Size()
    width = Size()
    gate_stride = Size()
    gate_offset = Int(0)
    dtype = Type()


class ConvStep(Op, reference="recurrent"):
    """y = silu(causal depthwise conv over time) of each row, walking a sequence's rows in order.

    `state` keeps the last taps - 1 raw inputs per channel, oldest first. A sequence reads
    `slot_in`; after each row the state is written to that row's `slot_out`.
    """

    x = read("rows", "stride", dtype="dtype")
    y = write("rows", "channels", dtype="dtype")
    weight = read("channels", "taps", dtype=F32)
    state = update("slots", "channels", "history", dtype=F32)
    first_row = read("sequences", dtype=I32)
    row_count = read("sequences", dtype=I32)
    slot_in = read("sequences", dtype=I32)
    slot_out = read("rows", dtype=I32)
    rows = Size()
    stride = Size()
    channels = Size()
    taps = Size()
    history = Size("taps - 1")
    slots = Size()
    sequences = Size()
    offset = Int(0)
    dtype = Type()


class ConvChunk(ConvStep, reference="recurrent"):
    """conv_step for one sequence's chunk: the state is written once, at its last row's slot."""


class GdnStep(Op, reference="recurrent"):
    """Gated delta rule, walking a sequence's rows in order.

    q, k and v lie one after another in a row of `qkv`; k and q are L2-normalised (eps inside the
    root), q is scaled by 1/sqrt(key_dim). beta = sigmoid(b); the state decays by
    exp(negative_a · softplus(a + dt_bias)). V head h uses K head h // (v_heads / k_heads)
    (`head_map` 0, grouped) or h mod k_heads (1, tiled). Slots as in conv_step.
    """

    qkv = read("rows", "channels", dtype="dtype")
    ab = read("rows", "ab_stride", dtype="dtype")
    negative_a = read("v_heads", dtype=F32, doc="-exp(A_log)")
    dt_bias = read("v_heads", dtype=F32)
    state = update("slots", "v_heads", "key_dim", "value_dim", dtype=F32)
    y = write("rows", "v_heads", "value_dim", dtype="dtype")
    first_row = read("sequences", dtype=I32)
    row_count = read("sequences", dtype=I32)
    slot_in = read("sequences", dtype=I32)
    slot_out = read("rows", dtype=I32)
    rows = Size()
    channels = Size("2 k_heads key_dim + v_heads value_dim")
    k_heads = Int()
    v_heads = Size()
    key_dim = Size()
    value_dim = Size()
    slots = Size()
    sequences = Size()
    ab_stride = Size()
    a_offset = Int()
    b_offset = Int()
    head_map = Int(0)
    dtype = Type()
    eps = Float(1e-6)


class GdnChunk(GdnStep, reference="recurrent"):
    """gdn_step for one sequence's chunk, in pieces of 64 positions from the chunk's start."""


class SlotCopy(Op, reference="recurrent"):
    """state[target[i]] = state[source[i]], bytes as they are; a target of 0 or below is skipped."""

    state = update("slots", "slot_words", dtype=I32)
    source = read("count", dtype=I32)
    target = read("count", dtype=I32)
    slots = Size()
    slot_words = Size()
    count = Size()


class SlotZero(Op, reference="recurrent"):
    """state[target[i]] = 0; a target of 0 or below is skipped."""

    state = update("slots", "slot_words", dtype=I32)
    target = read("count", dtype=I32)
    slots = Size()
    slot_words = Size()
    count = Size()


class Sample(Op, reference="sample"):
    """Choose each sequence's next id and move its row on.

    For an entry with `sample_row` r ≥ 0 and slot s: logits of ids ≥ vocabulary_live, of ids that
    the mask forbids, and of `ban_id` while row_length[r] < ban_below count as -inf; `bias` is
    added; the penalties apply; then temperature, top-k, top-p and min-p, each over what the one
    before left. Greedy takes the largest (the smallest id on a tie). Otherwise the id that
    maximises logit/temperature + Gumbel noise, where id i's noise is -log(-log(u)),
    u = ((w >> 9) + ½) · 2⁻²³ (exact in fp32, never 1), w = word i mod 4 of Philox4x32-10 with key
    seed (its low word first) and counter (i div 4, row_position[r] + 1, 0, 0): never by the row's
    place in the batch. top-k and top-p keep every id that ties with the last one kept; top-p keeps
    an id while the probabilities of the larger ones sum to less than top_p. NaN counts as -inf.

    next_id gets the id (-1 for an entry without a row); row_id[r] becomes it, row_position[r] and
    row_length[r] grow by one, and counts[s, id] too where SAMPLE_PENALTIES is set.
    """

    logits = read("sequences", "vocabulary", dtype=F32)
    slots = Records(Sampling, "slot_count")
    counts = update("slot_count", "vocabulary", dtype=I32)
    bias_id = read("slot_count", "bias_most", dtype=I32)
    bias = read("slot_count", "bias_most", dtype=F32)
    ban_id = read("slot_count", "ban_most", dtype=I32)
    mask = read("slot_count", "mask_words", dtype=I32, optional=True, doc="bit set: allowed")
    sampling_slot = read("sequences", dtype=I32)
    sample_row = read("sequences", dtype=I32)
    row_id = update("rows", dtype=I32)
    row_position = update("rows", dtype=I32)
    row_length = update("rows", dtype=I32)
    next_id = write("sequences", dtype=I32)
    sequences = Size()
    rows = Size()
    vocabulary = Size()
    slot_count = Size()
    bias_most = Size()
    ban_most = Size()
    mask_words = Size(default=0)
    vocabulary_live = Int()


class Logprobs(Op, reference="sample"):
    """Log probabilities of the raw logits, where the slot wants them: next_id's own, and the top.

    A slot with `logprobs` n ≥ 0 gets n entries, the largest first, ties by the smaller id; other
    entries are not written. Runs after sample.
    """

    logits = read("sequences", "vocabulary", dtype=F32)
    slots = Records(Sampling, "slot_count")
    sampling_slot = read("sequences", dtype=I32)
    next_id = read("sequences", dtype=I32)
    chosen = write("sequences", dtype=F32)
    top_id = write("sequences", "top", dtype=I32)
    top_logprob = write("sequences", "top", dtype=F32)
    top = Size()
    sequences = Size()
    vocabulary = Size()
    slot_count = Size()
    vocabulary_live = Int()


class AllReduce(Op, reference="ranks"):
    """x = the sum of all ranks' x, in rank order."""

    x = update("rows", "width", dtype="dtype")
    live = read(1, dtype=I32)
    rows = Size()
    width = Size()
    dtype = Type()


OPS: tuple[type[Op], ...] = tuple(Op.registry)
