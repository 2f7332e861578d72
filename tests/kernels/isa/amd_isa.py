"""Run compiled AMD kernels (code objects, ELF) on a CPU, one machine instruction after the other.

The instructions themselves are executed by tinygrad's emulator, imported from a checkout named by
the environment variable TINYGRAD_CHECKOUT (nothing of it is copied here). What is here loads the
code object, lays out the kernel arguments and registers as the hardware would, corrects what the
emulator has wrong, and schedules waves and workgroups.

    emu = Emulator(open("k.co", "rb").read())  # one code object, or an offload bundle with target=
    emu.launch("vadd", grid=(4, 1, 1), block=(256, 1, 1), args=[a, b, y, numpy.int32(n)])

Sizes: grid counts workgroups, block counts work-items, all sizes in bytes. Arrays are copied in,
and back. Buffers lie between unmapped pages, so that an access beyond the end of an array (its
length rounded up to 16 bytes) raises MemoryFault instead of passing unseen.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from arguments import dispatch_packet, kernarg_segment
from code_object import AmdIsaError, BadCodeObject, CodeObject, Kernel, Memory, unbundle
from registers import Launched
from schedule import MemoryFault, NoEnd, Schedule, Stats
from target import target_named
from translation import Translation, UnsupportedInstruction

__all__ = [
    "AmdIsaError",
    "BadCodeObject",
    "CodeObject",
    "Emulator",
    "Kernel",
    "Memory",
    "MemoryFault",
    "NoEnd",
    "Stats",
    "UnsupportedInstruction",
    "unbundle",
]


class Emulator:
    """Runs the kernels of one code object. Instructions are translated once a process and kept.

    Raises:
        BadCodeObject: no code object, or for a target that can't be run.
    """

    def __init__(self, code: bytes, target: str | None = None) -> None:
        self.co = CodeObject(code, target)
        self.target = target_named(self.co.target)
        self._translation = Translation(self.co, self.target)

    def kernel(self, name: str) -> Kernel:
        """Raises BadCodeObject: there is no such kernel, or it is for another wave size."""
        k = self.co.kernels.get(name)
        if k is None:
            raise BadCodeObject(f"no kernel {name!r}; there are {sorted(self.co.kernels)}")
        if k.wave32 != (self.target.wave == 32):
            raise BadCodeObject(
                f"{name}: wave size {32 if k.wave32 else 64} can't be run for {self.co.target}"
            )
        return k

    def unsupported(self, name: str) -> list[UnsupportedInstruction]:
        """Translates a whole kernel without running it; what can't be translated, in code order."""
        return self._translation.unsupported(self.kernel(name))

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[Any],
        *,
        dynamic_lds: int = 0,
        seed: int | None = None,
        resident: int = 4,
        max_instructions: int = 1 << 28,
    ) -> Stats:
        """Runs one kernel to its end. Arrays among `args` are copied in, and back when it ends.

        seed: None runs groups one by one in order and each wave up to its next barrier. A number
        shuffles the groups, keeps `resident` of them going at once, gives a random wave a random
        number of instructions at a time, and starts unset registers and LDS with random contents:
        results that change with the seed show a race or a read of something unset. A kernel whose
        groups wait for each other needs a seed, and `resident` groups or fewer. Above
        `max_instructions` wave instructions it raises NoEnd. An array given twice is one buffer;
        overlapping views are copied apart.
        """
        k, began = self.kernel(name), time.perf_counter()
        threads, most = block[0] * block[1] * block[2], k.meta[".max_flat_workgroup_size"]
        if not 0 < threads <= most:
            raise ValueError(f"{name}: {threads} work-items, at most {most}")
        lds = k.meta[".group_segment_fixed_size"] + dynamic_lds
        if lds > 65536:
            raise ValueError(f"{name}: {lds} bytes of LDS, at most 65536")
        kernarg, outputs = kernarg_segment(k, args, grid, block, dynamic_lds)
        packet = dispatch_packet(k, grid, block, lds, kernarg)
        launched = Launched(self.co, self.target, k, block, kernarg.address, packet.address, lds)
        schedule = Schedule(launched, self._translation, grid, seed, resident, max_instructions)
        schedule.run()
        for array, memory in outputs:
            ctypes.memmove(array.ctypes.data, memory.address, array.nbytes)
        schedule.stats.seconds = time.perf_counter() - began
        return schedule.stats
