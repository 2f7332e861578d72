"""Encodings that the emulator doesn't read as the hardware does, and ones that it reads alike."""

from __future__ import annotations

from typing import Any

from target import Target

# Cache maintenance does nothing here: (mask, value, bytes) of the first instruction word.
CACHE_OPS = {
    "cdna": [
        (0xFFFC0000, 0xE0000000 | op << 18, 8) for op in (0x28, 0x29, 0x3E, 0x3F)
    ],  # wbl2, inv(l2), wbinvl1(_vol)
    "rdna3": [(0xFFFC0000, 0xE0000000 | op << 18, 8) for op in (0x2B, 0x2C)],  # gl0_inv, gl1_inv
    "rdna4": [(0xFF3FC000, 0xEE000000 | op << 14, 12) for op in (0x2B, 0x2C, 0x4F)],
}  # inv, wb, wbinv
VOP3, VCC, LITERAL = 0x34 << 26, 106, 255
SHORT_OPS = {"VOP1": 0x140, "VOP2": 0x100, "VOPC": 0}
"""The short encodings of vector operations, and where their operations begin among VOP3's."""


def cache_op_size(target: Target, word: int) -> int:
    """Bytes of a cache instruction that starts with `word`; 0: it is another one."""
    return next((n for mask, value, n in CACHE_OPS[target.family] if word & mask == value), 0)


def as_gfx942(target: Target, raw: bytearray) -> bool:
    """Rewrites what older gfx9 targets encode otherwise than gfx942; whether anything changed."""
    if target.name not in ("gfx906", "gfx908", "gfx90a"):
        return False
    w = old = int.from_bytes(raw[:4], "little")
    if w >> 16 == 0xD1C1:
        w = w & 0xFFFF | 0xD1CB << 16  # v_mad_f32 -> v_fma_f32: one rounding less
    elif w >> 25 == 0x16:
        w = w & 0x01FFFFFF | 0x3B << 25  # v_mac_f32 -> v_fmac_f32
    elif w >> 16 == 0xD116:
        w = w & 0xFFFF | 0xD13B << 16
    elif target.name == "gfx90a" and 0xD3E3 <= w >> 16 <= 0xD3E7:
        w -= 6 << 16  # v_mfma_*bf16_1k
    elif target.name == "gfx908" and 0xD3C0 <= w >> 16 <= 0xD3EF and w >> 17 != 0x69EC:
        w |= 1 << 15  # v_mfma: always accumulator registers
    elif w >> 26 == 0x37 and w >> 14 & 3 == 1 and raw[6] & 0x7F == 0x7F:
        w |= 1 << 13  # scratch: the address register counts
    raw[:4] = w.to_bytes(4, "little")
    return w != old


def as_long(target: Target, kind: str, inst: Any, raw: bytearray) -> bool:
    """Rewrites a short vector operation on 16 bits of registers from v128 on; whether it is one.

    On gfx11 and later such a number in a short encoding names the upper half of a register from
    v0 on. The emulator reads it so for gfx9 as well, where it is the register itself; the long
    encoding (VOP3) it reads rightly.

    Raises:
        NotImplementedError: there is no long encoding of it.
    """
    if target.family != "cdna" or not kind.startswith(tuple(SHORT_OPS)) or "SDWA" in kind:
        return False
    bits = inst.canonical_op_bits
    if 16 not in (bits["d"], bits["s0"]):
        return False
    word = int.from_bytes(raw[:4], "little")
    source, low, high = word & 0x1FF, word >> 9 & 0xFF, word >> 17 & 0xFF
    op = {"VOP1": low, "VOP2": word >> 25 & 0x3F, "VOPC": high}[kind[:4]]
    registers = {"VOP1": [high], "VOP2": [low, high], "VOPC": [low]}[kind[:4]]
    if max(registers) < 128 and not ("DPP" not in kind and source >= 256 + 128):
        return False
    if kind not in SHORT_OPS or source == LITERAL:
        raise NotImplementedError(f"{inst.op.name}: 16 bits of registers from v128 on, as {kind}")
    to = VCC if kind == "VOPC" else high
    second = 256 + low if kind != "VOP1" else 0
    raw[:4] = (VOP3 | (SHORT_OPS[kind] + op) << 16 | to).to_bytes(4, "little")
    raw[4:8] = (source | second << 9).to_bytes(4, "little")
    return True
