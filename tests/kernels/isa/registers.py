"""The waves of a workgroup as the hardware starts them: registers, LDS and private memory."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from code_object import CodeObject, Kernel, Memory
from emulator import emulator
from target import Target

EXEC = 126
INLINE_CONSTANTS = 124  # from this scalar register on, nothing is a kernel's own


@dataclass(eq=False)
class Wave:
    regs: np.ndarray  # uint32: sgpr file, then vgpr file, then (wave 64) accumulator file
    mem: Any
    pc: Any
    waiting: bool = False
    ended: bool = False


@dataclass(eq=False)
class Group:
    """`lds` and each wave's private memory live as long as it does."""

    lds: Memory
    waves: list[Wave] = field(default_factory=list)
    scratch: list[Memory] = field(default_factory=list)


@dataclass(frozen=True)
class Launched:
    """What all groups of a launch share. `block` counts work-items; addresses and bytes."""

    co: CodeObject
    target: Target
    kernel: Kernel
    block: tuple[int, int, int]
    kernarg: int
    packet: int
    lds_bytes: int

    @property
    def scratch_bytes(self) -> int:
        """Private memory of a lane."""
        return int(self.kernel.meta[".private_segment_fixed_size"])


@functools.cache
def _scalar_file(wave: int) -> np.ndarray:
    """uint32: zeros and the inline constants."""
    return np.array(emulator().WaveState(wave, wave)._sgpr_mv, np.uint32)


def start_group(
    launched: Launched, group: tuple[int, int, int], fill: np.random.Generator | None
) -> Group:
    """Workgroup `group` of a launch. What the hardware leaves unset is noise from `fill`, or 0."""
    lds = Memory(max(launched.lds_bytes, 4))
    if fill is not None:
        lds.view()[:] = fill.integers(0, 256, lds.size, np.uint8)
    found = Group(lds)
    block = launched.block
    for first in range(0, block[0] * block[1] * block[2], launched.target.wave):
        scratch = Memory(max(launched.scratch_bytes, 4) * launched.target.wave)
        found.scratch.append(scratch)
        found.waves.append(_start_wave(launched, group, first, lds, scratch, fill))
    return found


def _start_wave(
    launched: Launched,
    group: tuple[int, int, int],
    first: int,
    lds: Memory,
    scratch: Memory,
    fill: np.random.Generator | None,
) -> Wave:
    """The wave of the work-items from `first` on."""
    emu, lanes = emulator(), launched.target.wave
    constants, files = _scalar_file(lanes), 2 if launched.target.accumulators else 1
    scalars, vectors = len(constants), 256 * lanes
    if fill is None:
        regs = np.zeros(scalars + vectors * files, np.uint32)
        kept = 0
    else:
        regs = fill.integers(0, 1 << 32, scalars + vectors * files, np.uint32)
        kept = INLINE_CONSTANTS
    s, v = regs[:scalars], regs[scalars : scalars + vectors].reshape(256, lanes)
    s[kept:] = constants[kept:]
    _set_scalars(launched, group, s)
    _set_ids(launched, first, s, v)
    s[emu.SCRATCH_STRIDE_IDX] = launched.scratch_bytes
    pc = launched.co.image.address + launched.kernel.entry
    s[emu.PC_LO_IDX], s[emu.PC_HI_IDX] = pc & 0xFFFFFFFF, pc >> 32
    at = regs.ctypes.data
    accumulators = at + 4 * (scalars + (files - 1) * vectors)
    mem = (ctypes.c_uint64 * 6)(at, at + 4 * scalars, 0, lds.address, scratch.address, accumulators)
    return Wave(regs, mem, ctypes.cast(at + 4 * emu.PC_LO_IDX, ctypes.POINTER(ctypes.c_uint64)))


def _set_scalars(launched: Launched, group: tuple[int, int, int], s: np.ndarray) -> None:
    """The registers that the kernel descriptor asks for, in the ABI's order."""
    emu, k = emulator(), launched.kernel
    packet, kernarg = launched.packet, launched.kernarg
    parts = (  # the private segment buffer (bit 0) isn't emulated
        (0, (0, 0, 0, 0)),
        (1, (packet & 0xFFFFFFFF, packet >> 32)),
        (2, (0, 0)),
        (3, (kernarg & 0xFFFFFFFF, kernarg >> 32)),
        (4, (0, 0)),
        (5, (0, 0)),
        (6, (launched.scratch_bytes,)),
    )
    user = [w for bit, words in parts if k.properties >> bit & 1 for w in words]
    # Preloaded arguments: the code's own prologue loads them.
    user.extend([0] * ((k.rsrc2 >> 1 & 31) - len(user)))
    if launched.target.family == "rdna4":
        s[emu.ttmp[9].offset] = group[0]
        s[emu.ttmp[7].offset] = group[1] & 0xFFFF | group[2] << 16
    else:
        ids = ((7, group[0]), (8, group[1]), (9, group[2]), (10, 0))
        user += [value for bit, value in ids if k.rsrc2 >> bit & 1]
    s[: len(user)] = user


def _set_ids(launched: Launched, first: int, s: np.ndarray, v: np.ndarray) -> None:
    """Work-item ids, and EXEC: the last wave may not be full."""
    block, target = launched.block, launched.target
    lanes = min(target.wave, block[0] * block[1] * block[2] - first)
    item = np.arange(first, first + lanes)
    x, y, z = item % block[0], item // block[0] % block[1], item // (block[0] * block[1])
    if target.packed_ids:
        v[0, :lanes] = z << 20 | y << 10 | x
    else:
        v[0, :lanes], v[1, :lanes], v[2, :lanes] = x, y, z
    mask = (1 << lanes) - 1
    s[EXEC], s[EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32
