"""Whose turn it is: groups and waves of a launch, until all have ended."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from code_object import PAGE, AmdIsaError
from emulator import emulator
from registers import Group, Launched, Wave, start_group
from translation import Translation

ENDED, BARRIER, UNTRANSLATED, FAULT, OUTSIDE = 0, 1, 2, 4, 5  # what run_wave returns
TURNS = (1, 3, 20, 200, 2000)  # instructions at a time
DENORMALS_KEPT, DENORMALS_FLUSHED = 0x1F80, 0x9FC0  # MXCSR; flushed ones are also taken as zero


class MemoryFault(AmdIsaError):
    """A wave touched an address outside every buffer, or LDS beyond its declared size."""


class NoEnd(AmdIsaError):
    """The launch executed more instructions than allowed, or no wave can go on."""


@dataclass
class Stats:
    """What one launch did: wave instructions executed, seconds in all and of translating."""

    instructions: int = 0
    seconds: float = 0.0
    translate_seconds: float = 0.0
    waves: int = 0


@functools.cache
def _wave_loop() -> Any:
    source = Path(__file__).resolve().with_name("wave_loop.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    out = Path(tempfile.gettempdir()) / f"amd-isa-{os.getuid()}-{digest}.so"
    if not out.exists():
        part = out.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(part)], check=True)
        part.rename(out)
    return ctypes.CDLL(str(out)).run_wave


class Schedule:
    """One launch. See Emulator.launch for `seed`, `resident` and `max_instructions`."""

    def __init__(
        self,
        launched: Launched,
        translation: Translation,
        grid: tuple[int, int, int],
        seed: int | None,
        resident: int,
        max_instructions: int,
    ) -> None:
        self._launched, self._translation = launched, translation
        self._rng = None if seed is None else random.Random(seed)
        self._fill = None if seed is None else np.random.default_rng(seed)
        self._resident = 1 if seed is None else resident
        self._most = max_instructions
        ids = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        if self._rng:
            self._rng.shuffle(ids)
        self._ids = ids[::-1]
        # Of fp32: the kernel's code says which it was compiled for.
        kept = launched.kernel.rsrc1 >> 16 & 3 == 3
        self._csr = DENORMALS_KEPT if kept else DENORMALS_FLUSHED
        self.stats = Stats()

    def run(self) -> None:
        """Raises MemoryFault, NoEnd and UnsupportedInstruction."""
        rng, stats, active = self._rng, self.stats, list[Group]()
        while self._ids or active:
            while self._ids and len(active) < self._resident:
                active.append(start_group(self._launched, self._ids.pop(), self._fill))
                stats.waves += len(active[-1].waves)
            group = rng.choice(active) if rng else active[0]
            live = [w for w in group.waves if not w.ended]
            ready = [w for w in live if not w.waiting]
            if not ready:
                for w in live:
                    w.waiting = False
                if not live:
                    active.remove(group)
                continue
            wave = rng.choice(ready) if rng else ready[0]
            self._step(group, wave, rng.choice(TURNS) if rng else self._most)
            if stats.instructions > self._most:
                name = self._launched.kernel.name
                raise NoEnd(f"{name}: more than {self._most} wave instructions")

    def _step(self, group: Group, w: Wave, budget: int) -> None:
        """Up to `budget` instructions of a wave, to its next barrier or its end."""
        co, kernel = self._launched.co, self._launched.kernel
        base, done, address = co.image.address, ctypes.c_uint64(0), ctypes.c_uint64(0)
        loop = _wave_loop()
        while True:
            rc = loop(
                w.pc,
                self._translation.table,
                ctypes.c_uint64(base),
                ctypes.c_uint64(co.size),
                w.mem,
                ctypes.c_uint32(self._launched.target.wave),
                ctypes.c_uint64(budget),
                ctypes.c_uint32(self._csr),
                ctypes.byref(done),
                ctypes.byref(address),
            )
            pc = w.pc.contents.value
            if rc != UNTRANSLATED:
                break
            began = time.perf_counter()
            self._translation.translate(pc, kernel)
            self.stats.translate_seconds += time.perf_counter() - began
        self.stats.instructions += done.value
        w.ended, w.waiting = rc == ENDED, rc == BARRIER
        if rc == FAULT:
            raise MemoryFault(self._fault(group, pc, address.value))
        if rc == OUTSIDE:
            raise MemoryFault(f"{kernel.name}: jump to {pc:#x}, outside the code object")

    def _fault(self, group: Group, pc: int, address: int) -> str:
        launched = self._launched
        text = repr(emulator()._decode_at(pc, launched.target.family)[1])
        at = address - group.lds.address
        where = f"LDS byte {at} of {group.lds.size}"
        if not -PAGE <= at < 1 << 17:
            where = f"address {address:#x}"
        offset = pc - launched.co.image.address - launched.kernel.entry
        return f"{launched.kernel.name}+{offset:#x}: {where}, in {text}"
