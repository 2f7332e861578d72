"""Choosing the next id, and log probabilities."""

from __future__ import annotations

import numpy as np

from flatwake_kernels.ops import COUNT_PROMPT, SAMPLE_MASK, SAMPLE_PENALTIES, Sampling
from flatwake_kernels.reference.call import Call
from flatwake_kernels.reference.philox import gumbel

GREEDY_BELOW = 1e-5


def sample(call: Call) -> None:
    next_id, counts = call.array("next_id"), call.array("counts")
    rows = call.size("rows")
    lengths, positions = call.array("row_length"), call.array("row_position")
    for sequence, row in enumerate(call.array("sample_row")):
        if not 0 <= row < rows:
            next_id[sequence] = -1
            continue
        slot = int(call.array("sampling_slot")[sequence])
        how = call.slots[slot]
        logits = _allowed(call, sequence, slot, int(lengths[row]))
        if how.flags & SAMPLE_PENALTIES:
            logits = _penalised(logits, counts[slot, : len(logits)], how)
        chosen = _choose(logits, how, int(positions[row]))
        next_id[sequence] = call.array("row_id")[row] = chosen
        positions[row] += 1
        lengths[row] += 1
        if how.flags & SAMPLE_PENALTIES:
            counts[slot, chosen] += 1


def _allowed(call: Call, sequence: int, slot: int, length: int) -> np.ndarray:
    """The logits of live ids with bias; what is forbidden is -inf."""
    live = call.size("vocabulary_live")
    logits = call.array("logits")[sequence, :live].copy()
    how = call.slots[slot]
    logits[np.isnan(logits)] = -np.inf
    if how.flags & SAMPLE_MASK and call.has("mask"):
        words = call.array("mask")[slot].view(np.uint8)
        logits[np.unpackbits(words, count=live, bitorder="little") == 0] = -np.inf
    if length < how.ban_below:
        banned = call.array("ban_id")[slot, : how.ban_count]
        logits[banned[(banned >= 0) & (banned < live)]] = -np.inf
    ids = call.array("bias_id")[slot, : how.bias_count]
    known = (ids >= 0) & (ids < live)
    logits[ids[known]] += call.array("bias")[slot, : how.bias_count][known]
    return logits


def _penalised(logits: np.ndarray, counts: np.ndarray, how: Sampling) -> np.ndarray:
    """Repetition over prompt and answer; presence and frequency over the answer."""
    answer = counts & (COUNT_PROMPT - 1)
    repetition = np.float32(how.repetition_penalty)
    repeated = np.where(logits > 0, logits / repetition, logits * repetition)
    logits = np.where(counts != 0, repeated, logits)
    logits = logits - np.float32(how.frequency_penalty) * answer.astype(np.float32)
    penalised: np.ndarray = logits - np.float32(how.presence_penalty) * (answer > 0)
    return penalised.astype(np.float32, copy=False)


def _choose(logits: np.ndarray, how: Sampling, position: int) -> int:
    if how.temperature < GREEDY_BELOW:
        return int(np.argmax(logits))
    scaled = logits / np.float32(how.temperature)
    kept = scaled >= _threshold(scaled, how)
    noisy = scaled + gumbel(how.seed, position + 1, len(scaled))
    return int(np.argmax(np.where(kept, noisy, -np.inf)))


def _threshold(scaled: np.ndarray, how: Sampling) -> np.float32:
    """The smallest logit that top-k, top-p and min-p leave, one after another."""
    largest = np.max(scaled)
    if not np.isfinite(largest):
        return np.float32(-np.inf)
    least = np.float32(-np.inf)
    if 0 < how.top_k < len(scaled):
        least = np.partition(scaled, len(scaled) - how.top_k)[len(scaled) - how.top_k]
    if how.top_p < 1:
        left = np.sort(scaled[(scaled >= least) & (scaled > -np.inf)])[::-1]
        weights = np.exp(left.astype(np.float64) - np.float64(largest))
        before = np.cumsum(weights) - weights
        count = int(np.count_nonzero(before < float(how.top_p) * weights.sum()))
        least = left[max(count, 1) - 1]
    if how.min_p > 0:
        least = max(least, np.float32(largest + np.log(np.float32(how.min_p))))
    return np.float32(least)


def logprobs(call: Call) -> None:
    live, top = call.size("vocabulary_live"), call.size("top")
    next_id = call.array("next_id")
    for sequence, chosen in enumerate(next_id):
        how = call.slots[int(call.array("sampling_slot")[sequence])]
        if how.logprobs < 0 or not 0 <= chosen < live:
            continue
        logits = call.array("logits")[sequence, :live]
        values = _log_softmax(logits)
        call.array("chosen")[sequence] = values[chosen]
        count = min(how.logprobs, top, live)
        order = np.argsort(-logits, kind="stable")[:count]
        call.array("top_id")[sequence, :count] = order
        call.array("top_logprob")[sequence, :count] = values[order]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    largest = wide.max()
    total = np.log(np.exp(wide - largest).sum())
    values: np.ndarray = (wide - largest - total).astype(np.float32)
    return values
