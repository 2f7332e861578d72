"""The structs of the C ABI that are not an op's parameters, and its codes."""

from __future__ import annotations

import ctypes

from flatwake_kernels.ops import RECORDS

ABI_VERSION = 1

UNSUPPORTED, MEMORY = 2, 3
"""Codes that a call may return; the others have no kind of error of their own."""

DEVICE, PINNED = 0, 1
"""Kinds of memory for fw_allocate."""
FLOAT_ACTIVATIONS, INT8_ACTIVATIONS = 0, 1
WAIT_SPIN, WAIT_BLOCK = 0, 1


class ContextOptions(ctypes.Structure):
    _fields_ = (
        ("heartbeat", ctypes.c_uint64),  # address of a uint64 to stamp, CLOCK_MONOTONIC ns; or 0
        ("settings", ctypes.c_uint64),  # char *, "name=value,…": a backend's own switches; or 0
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("threads", ctypes.c_int32),  # 0: all that this process may use
        ("wait", ctypes.c_int32),  # how events are waited for: 0 spin, 1 block
        ("reserved", ctypes.c_int32),
    )


class DeviceInfo(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("architecture", ctypes.c_char * 32),  # gfx1100, sm_90, avx512vnni …
        ("features", ctypes.c_char * 256),  # words
        ("compute_units", ctypes.c_int32),
        ("wave", ctypes.c_int32),
    )


class MemoryInfo(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_int64),
        ("free", ctypes.c_int64),
        ("allocated", ctypes.c_int64),  # by this context, prepared weights included
        ("peak", ctypes.c_int64),
    )


class WeightView(ctypes.Structure):
    """A segment of a linear layer's rows, as it lies in the file."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("permutation", ctypes.c_uint64),  # int32[rows]: row i is the file's permutation[i]; or 0
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("format", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class LinearInfo(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_int64),  # read by a step that uses the layer
        ("expanded", ctypes.c_int64),  # of these, what a missing kernel costs over the file's own
        ("own", ctypes.c_int64),  # memory held besides the file
    )


class Call(ctypes.Structure):
    _fields_ = (
        ("params", ctypes.c_uint64),
        ("size", ctypes.c_int64),  # of params, checked against the struct's
        ("op", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


STRUCTS: tuple[tuple[str, type[ctypes.Structure]], ...] = (
    ("fw_context_options", ContextOptions),
    ("fw_device_info", DeviceInfo),
    ("fw_memory_info", MemoryInfo),
    ("fw_weight_view", WeightView),
    ("fw_linear_info", LinearInfo),
    ("fw_call", Call),
    *RECORDS,
)
