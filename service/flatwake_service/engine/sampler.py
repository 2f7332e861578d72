"""Sampling on the device: the slots' parameters, counts and biases, and the ops that read them."""

from __future__ import annotations

import ctypes

import numpy as np
from flatwake_kernels import ops
from flatwake_kernels.backend import Backend
from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype
from flatwake_kernels.plan import Plan

from flatwake_service.engine.arrays import TOP_LOGPROBS, Downloaded, Outputs
from flatwake_service.engine.messages import TokenLogprobs
from flatwake_service.engine.sequence import Sequence
from flatwake_service.models.rows import Rows

MAX_BIASES = 300
"""Entries of logit_bias that a sequence may have (OpenAI's own limit)."""
MAX_STOP_IDS = 64

_WORDS = ctypes.sizeof(ops.Sampling) // 4


class Sampler:
    """State of `slots` sampling slots beside slot 0, on a backend."""

    def __init__(self, backend: Backend, slots: int, vocabulary: int, live: int) -> None:
        count = slots + 1
        self._live = live
        self._slots = backend.allocate(count, _WORDS, dtype=Dtype.I32)
        self._counts = backend.allocate(count, vocabulary, dtype=Dtype.I32)
        self._bias_id = backend.allocate(count, MAX_BIASES, dtype=Dtype.I32)
        self._bias = backend.allocate(count, MAX_BIASES, dtype=Dtype.F32)
        self._ban_id = backend.allocate(count, MAX_STOP_IDS, dtype=Dtype.I32)

    def take(self, sequence: Sequence) -> None:
        """Describe a sequence that got its slot; what it generated before is counted again."""
        params, slot = sequence.sampling, sequence.slot
        penalised = (
            params.repetition_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
        )
        record = ops.Sampling(
            seed=params.seed,
            temperature=params.temperature,
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            top_k=params.top_k,
            ban_below=sequence.prompt_length + params.min_tokens,
            ban_count=len(params.stop_ids),
            bias_count=len(params.logit_bias),
            logprobs=params.logprobs,
            flags=ops.SAMPLE_PENALTIES if penalised else 0,
        )
        self._slots[slot].write(np.frombuffer(bytes(record), np.int32))
        if penalised:
            self._counts[slot].write(_counts(sequence, self._counts.shape[1]))
        _write_head(self._ban_id[slot], np.array(params.stop_ids, np.int32))
        _write_head(self._bias_id[slot], np.array([i for i, _ in params.logit_bias], np.int32))
        _write_head(self._bias[slot], np.array([b for _, b in params.logit_bias], np.float32))

    def record(self, plan: Plan, logits: Buffer, rows: Rows, outputs: Outputs) -> None:
        """Choose each entry's next token, then its log probabilities."""
        count = rows.sequences
        next_id = outputs.buffer("next_id", count)
        plan.add(
            ops.Sample(
                logits=logits,
                slots=self._slots,
                counts=self._counts,
                bias_id=self._bias_id,
                bias=self._bias,
                ban_id=self._ban_id,
                sampling_slot=rows.sampling_slot,
                sample_row=rows.sample_row,
                row_id=rows.row_id,
                row_position=rows.row_position,
                row_length=rows.row_length,
                next_id=next_id,
                vocabulary_live=self._live,
            )
        )
        plan.add(
            ops.Logprobs(
                logits=logits,
                slots=self._slots,
                sampling_slot=rows.sampling_slot,
                next_id=next_id,
                chosen=outputs.buffer("chosen", count),
                top_id=outputs.buffer("top_id", count),
                top_logprob=outputs.buffer("top", count),
                vocabulary_live=self._live,
            )
        )


def read_logprobs(found: Downloaded, index: int, wanted: int) -> TokenLogprobs | None:
    """What the entry's slot wanted of its token; None where it wanted nothing."""
    if wanted < 0:
        return None
    most = min(wanted, TOP_LOGPROBS)
    return TokenLogprobs(
        float(found.value("chosen", index)[0]),
        tuple(int(i) for i in found.value("top_id", index)[:most]),
        tuple(float(v) for v in found.value("top", index)[:most]),
    )


def _counts(sequence: Sequence, vocabulary: int) -> np.ndarray:
    prompt = np.array(sequence.ids[: sequence.prompt_length], np.int64)
    answer = np.array(sequence.ids[sequence.prompt_length :], np.int64)
    counts = np.bincount(answer, minlength=vocabulary).astype(np.int32)
    counts[prompt] |= ops.COUNT_PROMPT
    return counts


def _write_head(buffer: Buffer, values: np.ndarray) -> None:
    if len(values):
        buffer.head(len(values)).write(values)
