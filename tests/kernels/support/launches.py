"""Kernel launches of a plan, which are its graph's nodes."""

from __future__ import annotations

import ctypes

from flatwake_kernels.native import NativePlan


def launches(plan: NativePlan) -> int:
    """How many kernels a run of the plan launches on a GPU, or on its emulation."""
    count = ctypes.c_int32()
    library = ctypes.CDLL(str(plan._backend.library.path))
    assert library.fw_plan_launches(plan._handle, ctypes.byref(count), None) == 0
    return count.value
