"""Run compiled AMD kernels (code objects, ELF) on a CPU, one machine instruction after the other.

The instructions themselves are executed by tinygrad's emulator, imported from a checkout named by
the environment variable TINYGRAD_CHECKOUT (nothing of it is copied here). This file is the loader
and the runner: it reads the code object, lays out the kernel arguments and registers as the
hardware would, and schedules waves and workgroups.

    emu = Emulator(open("k.co", "rb").read())  # one code object, or an offload bundle with target=
    emu.launch("vadd", grid=(4, 1, 1), block=(256, 1, 1), args=[a, b, y, numpy.int32(n)])

Sizes: grid counts workgroups, block counts work-items, all sizes in bytes. Arrays are copied in,
and back. Buffers lie between unmapped pages, so that an access beyond the end of an array (its
length rounded up to 16 bytes) raises MemoryFault instead of passing unseen.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from code_object import PAGE, AmdIsaError, BadCodeObject, CodeObject, Kernel, Memory, unbundle

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

FAMILY = {
    "gfx906": "cdna",
    "gfx908": "cdna",
    "gfx90a": "cdna",
    "gfx942": "cdna",
    "gfx950": "cdna",
}  # gfx11xx, gfx12xx below
OWN = {
    "SKIP": 1,
    "SWIZZLE": 2,
    "GETPC": 3,
    "SETPC": 4,
    "SWAPPC": 5,
    "BPERMUTE": 6,
    "PERMUTE": 7,
}  # executed in wave_loop.c
# cache maintenance does nothing here: (mask, value, bytes) of the first instruction word
CACHE_OPS = {
    "cdna": [
        (0xFFFC0000, 0xE0000000 | op << 18, 8) for op in (0x28, 0x29, 0x3E, 0x3F)
    ],  # wbl2, inv(l2), wbinvl1(_vol)
    "rdna3": [(0xFFFC0000, 0xE0000000 | op << 18, 8) for op in (0x2B, 0x2C)],  # gl0_inv, gl1_inv
    "rdna4": [(0xFF3FC000, 0xEE000000 | op << 14, 12) for op in (0x2B, 0x2C, 0x4F)],
}  # inv, wb, wbinv
UNPACKED_IDS = (
    "gfx906",
    "gfx908",
)  # work-item ids in v0, v1, v2; later targets pack 10 bits each into v0


class UnsupportedInstruction(AmdIsaError):
    """The emulator can't decode or execute this instruction.

    `text` names it, `offset` counts bytes from the kernel's entry.
    """

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(f"+{offset:#x}: {text}")
        self.text, self.offset = text, offset


class MemoryFault(AmdIsaError):
    """A wave touched an address outside every buffer, or LDS beyond its declared size."""


class NoEnd(AmdIsaError):
    """The launch executed more instructions than allowed, or no wave can go on."""


class _Entry(ctypes.Structure):
    _fields_ = [
        ("fn", ctypes.c_uint64),
        ("shadow", ctypes.c_uint64),
        ("arg", ctypes.c_uint8 * 6),
        ("flags", ctypes.c_uint8),
        ("size", ctypes.c_uint8),
        ("x", ctypes.c_uint32 * 4),
    ]


@functools.cache
def _wave_loop() -> Any:
    source = Path(__file__).resolve().with_name("wave_loop.c")
    out = (
        Path(tempfile.gettempdir())
        / f"amd-isa-{os.getuid()}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    )
    if not out.exists():
        part = out.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(part)], check=True)
        part.rename(out)
    return ctypes.CDLL(str(out)).run_wave


def _reencode(target: str, raw: bytearray) -> bool:
    """Rewrites what older gfx9 targets encode otherwise than gfx942; whether anything changed."""
    if target not in ("gfx906", "gfx908", "gfx90a"):
        return False
    w = old = int.from_bytes(raw[:4], "little")
    if w >> 16 == 0xD1C1:
        w = w & 0xFFFF | 0xD1CB << 16  # v_mad_f32 -> v_fma_f32: one rounding less
    elif w >> 25 == 0x16:
        w = w & 0x01FFFFFF | 0x3B << 25  # v_mac_f32 -> v_fmac_f32
    elif w >> 16 == 0xD116:
        w = w & 0xFFFF | 0xD13B << 16
    elif target == "gfx90a" and 0xD3E3 <= w >> 16 <= 0xD3E7:
        w -= 6 << 16  # v_mfma_*bf16_1k
    elif target == "gfx908" and 0xD3C0 <= w >> 16 <= 0xD3EF and w >> 17 != 0x69EC:
        w |= 1 << 15  # v_mfma: always accumulator registers
    elif w >> 26 == 0x37 and w >> 14 & 3 == 1 and raw[6] & 0x7F == 0x7F:
        w |= 1 << 13  # scratch: the address register counts
    raw[:4] = w.to_bytes(4, "little")
    return w != old


@functools.cache
def _emulator() -> Any:
    """The emulator module, with its compiler chosen.

    The return bit of atomics is read from each family's own field.
    """
    root = os.environ.get("TINYGRAD_CHECKOUT")
    if not root or not (Path(root) / "test/mockgpu/amd/emu.py").exists():
        raise AmdIsaError(
            "TINYGRAD_CHECKOUT must name a tinygrad checkout with test/mockgpu/amd/emu.py"
        )
    sys.path.insert(0, root)
    os.environ.setdefault("CC", "clang-19")
    os.environ["DEV"] = "CPU:CLANG"  # what its LLVM renderer makes of comparisons crashes
    import test.mockgpu.amd.emu as emu  # type: ignore[import-not-found]

    plain = emu._iattr

    def iattr(inst: Any, name: str, default: int = 0) -> int:
        if name == "glc" and not hasattr(inst, "glc"):
            return plain(inst, "sc0") or plain(inst, "th") & 1
        return plain(inst, name, default)

    emu._iattr = iattr
    return emu


@dataclass
class Stats:
    """What one launch did: wave instructions executed, seconds in all and of translating."""

    instructions: int = 0
    seconds: float = 0.0
    translate_seconds: float = 0.0
    waves: int = 0


@dataclass(eq=False)
class _Wave:
    regs: np.ndarray  # uint32: sgpr file, then vgpr file, then (wave 64) accumulator file
    mem: Any
    pc: Any
    waiting: bool = False
    ended: bool = False


@dataclass(eq=False)
class _Group:
    waves: list[_Wave]
    keep: list[Memory] = field(default_factory=list)


class Emulator:
    """Runs the kernels of one code object. Instructions are translated once a process and kept."""

    def __init__(self, code: bytes, target: str | None = None) -> None:
        self.co = CodeObject(code, target)
        t = self.co.target
        family = FAMILY.get(t) or (
            "rdna3" if t.startswith("gfx11") else "rdna4" if t.startswith("gfx12") else None
        )
        if family is None:
            raise BadCodeObject(f"no emulation for {t}")
        self.family, self.wave = family, 64 if family == "cdna" else 32
        self._table = (_Entry * (self.co.size // 4 + 1))()
        self._template: np.ndarray | None = None
        self._shadows: dict[int, Memory] = {}

    def kernel(self, name: str) -> Kernel:
        k = self.co.kernels.get(name)
        if k is None:
            raise BadCodeObject(f"no kernel {name!r}; there are {sorted(self.co.kernels)}")
        if k.wave32 != (self.wave == 32):
            raise BadCodeObject(
                f"{name}: wave size {32 if k.wave32 else 64} can't be run for {self.co.target}"
            )
        return k

    def unsupported(self, name: str) -> list[UnsupportedInstruction]:
        """Translates a whole kernel without running it; what can't be translated, in code order."""
        k, bad, pc = self.kernel(name), [], 0
        while pc < k.size:
            try:
                pc += self._translate(self.co.image.address + k.entry + pc, k)
            except UnsupportedInstruction as e:
                bad.append(e)
                pc += 4  # the size of an unknown instruction is unknown: go on at the next word
        return bad

    def _translate(self, pc: int, k: Kernel) -> int:
        """Fills the table entry of the instruction at pc; its size in bytes."""
        emu, base = _emulator(), self.co.image.address
        e, word = self._table[(pc - base) >> 2], ctypes.c_uint32.from_address(pc).value
        for mask, value, size in CACHE_OPS[self.family]:
            if word & mask == value:
                e.size, e.fn = size, OWN["SKIP"]
                return size
        try:
            raw = bytearray(ctypes.string_at(pc, 16))
            changed = _reencode(self.co.target, raw)
            inst = emu.decode_inst(bytes(raw), self.family)
            name, kind, size = emu._op_name(inst), type(inst).__name__, inst.size()
            e.size = size
            for operand in ("src0", "src1", "ssrc0", "ssrc1"):
                code = getattr(getattr(inst, operand, None), "offset", 0)
                if code in (235, 236, 237, 238):
                    raise NotImplementedError(f"{name}: a generic pointer to LDS or private memory")
                if code in (233, 234, 250) and "DPP" not in kind:
                    raise NotImplementedError(f"{name}: DPP8 or DPP in the VOP3 form")
            if name.startswith("DS_SWIZZLE"):
                pattern = inst.offset1 << 8 | inst.offset0
                if pattern >= 0xC000:
                    raise NotImplementedError("ds_swizzle: rotate and FFT modes")
                e.x[:] = inst.vdst.offset - 256, inst.addr.offset - 256, pattern, 0
                e.fn = OWN["SWIZZLE"]
                return size
            if "MFMA" in name and "32X32" in name:
                raise NotImplementedError(
                    f"{name}: the emulator lays the result out unlike the hardware"
                )
            if "PERMUTE_B32" in name and kind == "DS":
                e.x[:] = (
                    inst.vdst.offset - 256,
                    inst.addr.offset - 256,
                    inst.data0.offset - 256,
                    inst.offset1 << 8 | inst.offset0,
                )
                e.fn = OWN["BPERMUTE" if "BPERMUTE" in name else "PERMUTE"]
                return size
            if kind == "MUBUF" and k.meta[".private_segment_fixed_size"]:
                raise NotImplementedError(f"{name}: private memory through buffer instructions")
            if name in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64"):
                e.x[:] = inst.sdst.offset, inst.ssrc0.offset, 0, 0
                e.fn = OWN[name[2:-4]]
                return size
            if (
                "DPP" in kind
            ):  # the lanes are permuted here; the emulator gets a copy that permutes nothing
                changed = True
                dpp, used = (
                    int.from_bytes(raw[4:8], "little"),
                    {getattr(getattr(inst, f, None), "offset", 0) for f in ("vdst", "vsrc1")},
                )
                stand_in = next(r for r in (255, 254, 253) if r + 256 not in used)
                raw[4:8] = (dpp & 0x00F00000 | 0xFF08E400 | stand_in).to_bytes(4, "little")
                e.x[:] = dpp & 255, stand_in, dpp, 0
            if changed:
                self._shadows[pc] = shadow = Memory(32)
                ctypes.memmove(shadow.address, bytes(raw), len(raw))
                e.shadow = shadow.address
            prog, runtime = emu._decode_at(e.shadow or pc, self.family)[0]
        except Exception as err:
            raise UnsupportedInstruction(str(err)[:300], pc - base - k.entry) from err
        for i, g in enumerate(prog.arg.globals):
            e.arg[i] = g
        e.flags = int(name in ("S_BARRIER", "S_BARRIER_WAIT")) | (4 if "DPP" in kind else 0)
        lds = kind.startswith("DS")
        if lds or "ATOMIC" in name:
            scalar = (
                not lds and getattr(inst, "saddr", None) is not None and inst.saddr.offset < 124
            )
            e.flags, e.x[0], e.x[1] = (
                e.flags | 2,
                (inst.vaddr if hasattr(inst, "vaddr") else inst.addr).offset - 256,
                1 if lds or scalar else 2,
            )
        if "WMMA" in name and (code := inst.src2.offset) < 256:
            if any(abs(r.offset - 256 - code) < 8 for r in (inst.vdst, inst.src0, inst.src1)):
                raise UnsupportedInstruction(
                    f"{name}: operands near v{code} with a constant C", pc - base - k.entry
                )
            e.flags, e.x[0] = 8, code
        e.fn = ctypes.cast(runtime.fxn, ctypes.c_void_p).value or 0
        return size

    def _kernarg(
        self,
        k: Kernel,
        args: Sequence[Any],
        grid: tuple[int, ...],
        block: tuple[int, ...],
        dynamic: int,
    ) -> tuple[Memory, list[tuple[np.ndarray, Memory]]]:
        """The kernarg segment, and (array, memory) for each array to copy back."""
        m: dict[str, Any] = k.meta
        out: list[tuple[np.ndarray, Memory]] = []
        seg = Memory(max(m[".kernarg_segment_size"], 8))
        raw = bytearray(seg.size)
        hidden = {f"hidden_block_count_{c}": n for c, n in zip("xyz", grid, strict=False)} | {
            f"hidden_group_size_{c}": n for c, n in zip("xyz", block, strict=False)
        }
        hidden |= {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": dynamic}
        left = list(args)
        for arg in m.get(".args", []):
            kind, off, size = arg[".value_kind"], arg[".offset"], arg[".size"]
            if kind.startswith("hidden_"):
                raw[off : off + size] = int(hidden.get(kind, 0)).to_bytes(size, "little")
                continue
            if not left:
                raise ValueError(f"{k.name}: too few arguments")
            v = left.pop(0)
            if isinstance(v, np.ndarray):
                if not v.flags.c_contiguous:
                    raise ValueError(f"{k.name}: array arguments must be C-contiguous")
                mem = next(
                    (had for a, had in out if a is v), None
                )  # one array given twice is one buffer
                if mem is None:
                    mem = Memory(v.nbytes)
                    ctypes.memmove(mem.address, v.ctypes.data, v.nbytes)
                    out.append((v, mem))
                b = struct.pack("<Q", mem.address)
            elif isinstance(v, Memory):
                b = struct.pack("<Q", v.address)
            elif isinstance(v, np.generic):
                b = v.tobytes()
            elif isinstance(v, (bytes, bytearray)):
                b = bytes(v)  # a struct passed by value
            elif isinstance(v, float):
                b = struct.pack("<f" if size == 4 else "<d", v)
            else:
                b = int(v).to_bytes(size, "little", signed=int(v) < 0)
            if len(b) != size:
                raise ValueError(
                    f"{k.name}: argument at offset {off} takes {size} bytes, not {len(b)}"
                )
            raw[off : off + size] = b
        if left:
            raise ValueError(f"{k.name}: {len(left)} arguments too many")
        ctypes.memmove(seg.address, bytes(raw), len(raw))
        return seg, out

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
        k, stats, start = self.kernel(name), Stats(), time.perf_counter()
        threads, m = block[0] * block[1] * block[2], k.meta
        if not 0 < threads <= m[".max_flat_workgroup_size"]:
            raise ValueError(
                f"{name}: {threads} work-items, at most {m['.max_flat_workgroup_size']}"
            )
        lds = m[".group_segment_fixed_size"] + dynamic_lds
        if lds > 65536:
            raise ValueError(f"{name}: {lds} bytes of LDS, at most 65536")
        kernarg, outputs = self._kernarg(k, args, grid, block, dynamic_lds)
        packet = Memory(64)
        ctypes.memmove(
            packet.address,
            struct.pack(
                "<HHHHHHIIIIIQQQQ",
                2,
                3,
                *block,
                0,
                *(g * b for g, b in zip(grid, block, strict=False)),
                m[".private_segment_fixed_size"],
                lds,
                0,
                kernarg.address,
                0,
                0,
            ),
            64,
        )
        rng = None if seed is None else random.Random(seed)
        fill = None if seed is None else np.random.default_rng(seed)
        ids = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        if rng:
            rng.shuffle(ids)
        ids.reverse()
        active: list[_Group] = []
        csr = (
            0x1F80 if k.rsrc1 >> 16 & 3 == 3 else 0x9FC0
        )  # denormals of fp32 kept, or flushed and taken as zero
        while ids or active:
            while ids and len(active) < (resident if rng else 1):
                active.append(
                    self._group(k, ids.pop(), block, kernarg.address, packet.address, lds, fill)
                )
                stats.waves += len(active[-1].waves)
            group = rng.choice(active) if rng else active[0]
            ready = [w for w in group.waves if not (w.ended or w.waiting)]
            if not ready:
                live = [w for w in group.waves if not w.ended]
                for w in live:
                    w.waiting = False
                if not live:
                    active.remove(group)
                continue
            wave = rng.choice(ready) if rng else ready[0]
            self._step(
                k,
                wave,
                rng.choice((1, 3, 20, 200, 2000)) if rng else max_instructions,
                csr,
                stats,
                group,
            )
            if stats.instructions > max_instructions:
                raise NoEnd(f"{name}: more than {max_instructions} wave instructions")
        for a, mem in outputs:
            ctypes.memmove(a.ctypes.data, mem.address, a.nbytes)
        stats.seconds = time.perf_counter() - start
        return stats

    def _step(
        self, k: Kernel, w: _Wave, budget: int, csr: int, stats: Stats, group: _Group
    ) -> None:
        base, done, addr = self.co.image.address, ctypes.c_uint64(0), ctypes.c_uint64(0)
        loop = _wave_loop()
        while True:
            rc = loop(
                w.pc,
                self._table,
                ctypes.c_uint64(base),
                ctypes.c_uint64(self.co.size),
                w.mem,
                ctypes.c_uint32(self.wave),
                ctypes.c_uint64(budget),
                ctypes.c_uint32(csr),
                ctypes.byref(done),
                ctypes.byref(addr),
            )
            pc = w.pc.contents.value
            if rc == 2:
                t = time.perf_counter()
                self._translate(pc, k)
                stats.translate_seconds += time.perf_counter() - t
                continue
            stats.instructions += done.value
            if rc == 0:
                w.ended = True
            elif rc == 1:
                w.waiting = True
            elif rc == 4:
                text = repr(_emulator()._decode_at(pc, self.family)[1])
                lds = group.keep[0]
                where = (
                    f"LDS byte {addr.value - lds.address} of {lds.size}"
                    if -PAGE <= addr.value - lds.address < 1 << 17
                    else f"address {addr.value:#x}"
                )
                raise MemoryFault(f"{k.name}+{pc - base - k.entry:#x}: {where}, in {text}")
            elif rc == 5:
                raise MemoryFault(f"{k.name}: jump to {pc:#x}, outside the code object")
            return

    def _group(
        self,
        k: Kernel,
        gid: tuple[int, int, int],
        block: tuple[int, ...],
        kernarg: int,
        packet: int,
        lds_size: int,
        fill: Any,
    ) -> _Group:
        """One workgroup's waves with the registers that the kernel descriptor asks for."""
        emu, n, scratch_size = (
            _emulator(),
            block[0] * block[1] * block[2],
            k.meta[".private_segment_fixed_size"],
        )
        if self._template is None:
            st = emu.WaveState(self.wave, self.wave)
            self._template = np.array(st._sgpr_mv, np.uint32)  # inline constants
        lds = Memory(max(lds_size, 4))
        if fill is not None:
            lds.view()[:] = fill.integers(0, 256, lds.size, np.uint8)
        group, files = _Group([], [lds]), 2 if self.family == "cdna" else 1
        for first in range(0, n, self.wave):
            ns = len(self._template)
            regs = (
                np.zeros(ns + 256 * self.wave * files, np.uint32)
                if fill is None
                else fill.integers(0, 1 << 32, ns + 256 * self.wave * files, np.uint32)
            )
            s, v = regs[:ns], regs[ns : ns + 256 * self.wave].reshape(256, self.wave)
            s[124 if fill is not None else 0 :] = self._template[124 if fill is not None else 0 :]
            # user registers in the ABI's order; the private segment buffer (bit 0) isn't emulated
            parts = (
                (0, (0, 0, 0, 0)),
                (1, (packet & 0xFFFFFFFF, packet >> 32)),
                (2, (0, 0)),
                (3, (kernarg & 0xFFFFFFFF, kernarg >> 32)),
                (4, (0, 0)),
                (5, (0, 0)),
                (6, (scratch_size,)),
            )
            user = [w for bit, words in parts if k.properties >> bit & 1 for w in words]
            user.extend(
                [0] * ((k.rsrc2 >> 1 & 31) - len(user))
            )  # preloaded arguments: the code's own prologue loads them
            for bit, value in ((7, gid[0]), (8, gid[1]), (9, gid[2]), (10, 0)):
                if k.rsrc2 >> bit & 1 and self.family != "rdna4":
                    user.append(value)
            s[: len(user)] = user
            if self.family == "rdna4":
                s[emu.ttmp[9].offset], s[emu.ttmp[7].offset] = (
                    gid[0],
                    gid[1] & 0xFFFF | gid[2] << 16,
                )
            lanes = min(self.wave, n - first)
            tid = np.arange(first, first + lanes)
            xyz = tid % block[0], tid // block[0] % block[1], tid // (block[0] * block[1])
            if self.co.target in UNPACKED_IDS:
                for i in range(3):
                    v[i, :lanes] = xyz[i]
            else:
                v[0, :lanes] = xyz[2] << 20 | xyz[1] << 10 | xyz[0]
            mask = (1 << lanes) - 1
            s[126], s[127] = mask & 0xFFFFFFFF, mask >> 32
            s[emu.SCRATCH_STRIDE_IDX] = scratch_size
            pc = self.co.image.address + k.entry
            s[emu.PC_LO_IDX], s[emu.PC_HI_IDX] = pc & 0xFFFFFFFF, pc >> 32
            scratch = Memory(max(scratch_size, 4) * self.wave)
            group.keep.append(scratch)
            at = regs.ctypes.data
            mem = (ctypes.c_uint64 * 6)(
                at,
                at + 4 * ns,
                0,
                lds.address,
                scratch.address,
                at + 4 * (ns + (files - 1) * 256 * self.wave),
            )
            group.waves.append(
                _Wave(
                    regs, mem, ctypes.cast(at + 4 * emu.PC_LO_IDX, ctypes.POINTER(ctypes.c_uint64))
                )
            )
        return group
