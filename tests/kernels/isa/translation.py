"""A code object's instructions, translated one by one: what wave_loop.c calls for each."""

from __future__ import annotations

import ctypes
from typing import Any

from code_object import AmdIsaError, CodeObject, Kernel, Memory
from emulator import emulator
from encoding import as_gfx942, as_long, cache_op_size
from target import Target

# Executed in wave_loop.c.
OWN = {
    "SKIP": 1,
    "SWIZZLE": 2,
    "GETPC": 3,
    "SETPC": 4,
    "SWAPPC": 5,
    "BPERMUTE": 6,
    "PERMUTE": 7,
    "MFMA_F16": 8,
}
# An entry's flags; wave_loop.c says what each needs in x.
BARRIER, ADDRESSES, PERMUTED, CONSTANT_C = 1, 2, 4, 8


class UnsupportedInstruction(AmdIsaError):
    """The emulator can't decode or execute this instruction.

    `text` names it, `offset` counts bytes from the kernel's entry.
    """

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(f"+{offset:#x}: {text}")
        self.text, self.offset = text, offset


class Entry(ctypes.Structure):
    """wave_loop.c's `entry`."""

    _fields_ = [
        ("fn", ctypes.c_uint64),
        ("shadow", ctypes.c_uint64),
        ("arg", ctypes.c_uint8 * 6),
        ("flags", ctypes.c_uint8),
        ("size", ctypes.c_uint8),
        ("x", ctypes.c_uint32 * 4),
    ]


class Translation:
    """`table` has an entry for each word of the code object; it is filled as code is reached."""

    def __init__(self, co: CodeObject, target: Target) -> None:
        self.co, self.target = co, target
        self.table = (Entry * (co.size // 4 + 1))()
        self._shadows: dict[int, Memory] = {}

    def unsupported(self, k: Kernel) -> list[UnsupportedInstruction]:
        """Translates a whole kernel without running it; what can't be translated, in code order."""
        bad, pc = [], 0
        while pc < k.size:
            try:
                pc += self.translate(self.co.image.address + k.entry + pc, k)
            except UnsupportedInstruction as e:
                bad.append(e)
                pc += 4  # the size of an unknown instruction is unknown: go on at the next word
        return bad

    def translate(self, pc: int, k: Kernel) -> int:
        """Fills the table entry of the instruction at pc; its size in bytes."""
        base = self.co.image.address
        e, word = self.table[(pc - base) >> 2], ctypes.c_uint32.from_address(pc).value
        if size := cache_op_size(self.target, word):
            e.size, e.fn = size, OWN["SKIP"]
            return size
        try:
            self._fill(e, pc, k)
        except Exception as err:
            raise UnsupportedInstruction(str(err)[:300], pc - base - k.entry) from err
        return int(e.size)

    def _fill(self, e: Entry, pc: int, k: Kernel) -> None:
        emu, raw = emulator(), bytearray(ctypes.string_at(pc, 16))
        changed = as_gfx942(self.target, raw)
        inst = emu.decode_inst(bytes(raw), self.target.family)
        e.size = inst.size()
        if as_long(self.target, type(inst).__name__, inst, raw):
            changed, inst = True, emu.decode_inst(bytes(raw), self.target.family)
        name, kind = emu._op_name(inst), type(inst).__name__
        _refuse(name, kind, inst, k)
        if _own(e, name, kind, inst):
            return
        if name == "V_MFMA_F32_16X16X16_F16":
            _multiply_ourselves(e, inst, self.target)
            return
        if "DPP" in kind:
            changed = True
            _permute_ourselves(e, inst, raw)
        if changed:
            self._shadows[pc] = shadow = Memory(32)
            ctypes.memmove(shadow.address, bytes(raw), len(raw))
            e.shadow = shadow.address
        prog, runtime = emu._decode_at(e.shadow or pc, self.target.family)[0]
        for i, g in enumerate(prog.arg.globals):
            e.arg[i] = g
        _flag(e, name, kind, inst)
        e.fn = ctypes.cast(runtime.fxn, ctypes.c_void_p).value or 0


def _refuse(name: str, kind: str, inst: Any, k: Kernel) -> None:
    """Raises NotImplementedError: the emulator would run this, and wrongly."""
    for operand in ("src0", "src1", "ssrc0", "ssrc1"):
        code = getattr(getattr(inst, operand, None), "offset", 0)
        if code in (235, 236, 237, 238):
            raise NotImplementedError(f"{name}: a generic pointer to LDS or private memory")
        if code in (233, 234, 250) and "DPP" not in kind:
            raise NotImplementedError(f"{name}: DPP8 or DPP in the VOP3 form")
    if name.startswith("DS_SWIZZLE") and inst.offset1 << 8 | inst.offset0 >= 0xC000:
        raise NotImplementedError("ds_swizzle: rotate and FFT modes")
    if "MFMA" in name and "32X32" in name:
        raise NotImplementedError(f"{name}: the emulator lays the result out unlike the hardware")
    if "MFMA" in name and name.endswith("_F16") and name != "V_MFMA_F32_16X16X16_F16":
        raise NotImplementedError(f"{name}: denormals are lost, infinities come out finite")
    if kind == "MUBUF" and k.meta[".private_segment_fixed_size"]:
        raise NotImplementedError(f"{name}: private memory through buffer instructions")


def _own(e: Entry, name: str, kind: str, inst: Any) -> bool:
    """Fills the entry of an instruction that wave_loop.c executes; whether it is one."""
    if name.startswith("DS_SWIZZLE"):
        pattern = inst.offset1 << 8 | inst.offset0
        e.x[:] = inst.vdst.offset - 256, inst.addr.offset - 256, pattern, 0
        e.fn = OWN["SWIZZLE"]
    elif "PERMUTE_B32" in name and kind == "DS":
        offset = inst.offset1 << 8 | inst.offset0
        e.x[:] = *(r.offset - 256 for r in (inst.vdst, inst.addr, inst.data0)), offset
        e.fn = OWN["BPERMUTE" if "BPERMUTE" in name else "PERMUTE"]
    elif name in ("S_GETPC_B64", "S_SETPC_B64", "S_SWAPPC_B64"):
        e.x[:] = inst.sdst.offset, inst.ssrc0.offset, 0, 0
        e.fn = OWN[name[2:-4]]
    else:
        return False
    return True


def _multiply_ourselves(e: Entry, inst: Any, target: Target) -> None:
    """The emulator loses denormal factors, and makes numbers of infinities and NaN."""
    factors, sums = inst.acc, inst.acc_cd
    e.arg[:4] = sums, factors & 1, factors >> 1, sums
    e.x[:] = (*(r.offset for r in (inst.vdst, inst.src0, inst.src1, inst.src2)),)
    e.flags = target.flushes_halves
    e.fn = OWN["MFMA_F16"]


def _permute_ourselves(e: Entry, inst: Any, raw: bytearray) -> None:
    """wave_loop.c permutes the lanes into a stand-in; the emulator gets a copy without DPP's."""
    dpp = int.from_bytes(raw[4:8], "little")
    used = {getattr(getattr(inst, f, None), "offset", 0) for f in ("vdst", "vsrc1")}
    stand_in = next(r for r in (255, 254, 253) if r + 256 not in used)
    raw[4:8] = (dpp & 0x00F00000 | 0xFF08E400 | stand_in).to_bytes(4, "little")
    e.x[:] = dpp & 255, stand_in, dpp, 0


def _flag(e: Entry, name: str, kind: str, inst: Any) -> None:
    e.flags = BARRIER if name in ("S_BARRIER", "S_BARRIER_WAIT") else 0
    if "DPP" in kind:
        e.flags |= PERMUTED
    lds = kind.startswith("DS")
    if lds or "ATOMIC" in name:
        scalar = not lds and getattr(inst, "saddr", None) is not None and inst.saddr.offset < 124
        address = inst.vaddr if hasattr(inst, "vaddr") else inst.addr
        e.flags |= ADDRESSES
        e.x[0], e.x[1] = address.offset - 256, 1 if lds or scalar else 2
    if "WMMA" in name and (code := inst.src2.offset) < 256:
        if any(abs(r.offset - 256 - code) < 8 for r in (inst.vdst, inst.src0, inst.src1)):
            raise NotImplementedError(f"{name}: operands near v{code} with a constant C")
        e.flags, e.x[0] = CONSTANT_C, code
