"""AMD code objects (ELF): kernels, metadata, a relocated image; memory between unmapped pages."""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE


class AmdIsaError(Exception):
    """Anything that stops a launch."""


class BadCodeObject(AmdIsaError):
    """The bytes are no code object for a target that can be run, or the kernel isn't in it."""


_libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """`size` zeroed bytes that end (rounded up to 16) before an unmapped page, one before them."""

    def __init__(self, size: int, align: int = 16) -> None:
        self.size, padded = size, -(-max(size, 1) // align) * align
        body = -(-padded // PAGE) * PAGE
        self._map = mmap.mmap(-1, body + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for page in (base, base + PAGE + body):
            if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.address = base + PAGE + body - padded
        if align > PAGE or self.address % min(align, 16):
            raise ValueError(f"alignment {align}")

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.size)

    def view(self, dtype: Any = np.uint8, shape: Sequence[int] | None = None) -> np.ndarray:
        """This memory as an array, no copy; keep the Memory alive while it is used."""
        a = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address)).view(
            dtype
        )
        return a if shape is None else a.reshape(shape)


def _msgpack(b: bytes, i: int) -> tuple[Any, int]:
    """One msgpack value at b[i:] and the position behind it (the types that AMD metadata uses)."""
    t = b[i]
    i += 1
    if t < 0x80:
        return t, i
    if t >= 0xE0:
        return t - 256, i
    if t in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[t], i
    if 0xCC <= t <= 0xD3:
        n, signed = 1 << (t - 0xCC & 3), t >= 0xD0
        return int.from_bytes(b[i : i + n], "big", signed=signed), i + n
    if 0xA0 <= t < 0xC0:
        kind, n = "s", t & 31
    elif 0x80 <= t < 0x90:
        kind, n = "m", t & 15
    elif 0x90 <= t < 0xA0:
        kind, n = "a", t & 15
    elif t in (0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF):
        kind, w = {
            0xD9: ("s", 1),
            0xDA: ("s", 2),
            0xDB: ("s", 4),
            0xDC: ("a", 2),
            0xDD: ("a", 4),
            0xDE: ("m", 2),
            0xDF: ("m", 4),
        }[t]
        n, i = int.from_bytes(b[i : i + w], "big"), i + w
    else:
        raise BadCodeObject(f"metadata: msgpack type {t:#x}")
    if kind == "s":
        return b[i : i + n].decode(), i + n
    items = []
    for _ in range(n * (2 if kind == "m" else 1)):
        v, i = _msgpack(b, i)
        items.append(v)
    return (dict(zip(items[::2], items[1::2], strict=False)) if kind == "m" else items), i


def unbundle(data: bytes, target: str) -> bytes:
    """The code object for `target` ("gfx1100") out of an uncompressed clang offload bundle."""
    count, pos, found = *struct.unpack_from("<Q", data, 24), 32, []
    for _ in range(count):
        off, size, n = struct.unpack_from("<QQQ", data, pos)
        name = data[pos + 24 : pos + 24 + n].decode()
        pos += 24 + n
        found.append(name)
        if name.startswith("hip") and name.split("--")[-1].split(":")[0] == target:
            return data[off : off + size]
    raise BadCodeObject(f"no code object for {target} among {found}")


@dataclass(frozen=True)
class Kernel:
    """A kernel: its metadata, the virtual address of its first instruction, its code's bytes."""

    name: str
    meta: dict[str, Any]
    entry: int
    size: int
    rsrc1: int
    rsrc2: int
    properties: int

    @property
    def wave32(self) -> bool:
        return bool(self.properties >> 10 & 1)


class CodeObject:
    """A loaded code object: segments in memory, `target` such as "gfx90a", `kernels` by name."""

    def __init__(self, data: bytes, target: str | None = None) -> None:
        if data[:24] == b"__CLANG_OFFLOAD_BUNDLE__":
            data = unbundle(data, target or "")
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 224:
            raise BadCodeObject("not an AMD GPU ELF")
        phoff, shoff = struct.unpack_from("<QQ", data, 32)
        phnum, _, shnum = struct.unpack_from("<HHH", data, 56)
        segs = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i) for i in range(phnum)]
        secs = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(shnum)]
        self.size = max(s[3] + s[6] for s in segs if s[0] == 1)
        self.image = Memory(self.size)
        for s in segs:
            if s[0] == 1:
                ctypes.memmove(self.image.address + s[3], data[s[2] : s[2] + s[5]], s[5])
        meta: dict[str, Any] = {}
        for s in segs:
            if s[0] != 4:
                continue
            pos = s[2]
            while pos < s[2] + s[5]:
                n, d, kind = struct.unpack_from("<III", data, pos)
                pos += 12 + (n + 3 & ~3)
                if kind == 32:
                    meta = _msgpack(data[pos : pos + d], 0)[0]
                pos += d + 3 & ~3
        if "amdhsa.kernels" not in meta:
            raise BadCodeObject("no AMD metadata")
        self.target: str = meta["amdhsa.target"].split("--")[-1].split(":")[0]
        self.symbols: dict[str, tuple[int, int]] = {}  # name -> (virtual address, size)
        syms: list[int] = []
        for s in secs:
            if s[1] != 11:
                continue  # .dynsym
            strings = secs[s[6]]
            for i in range(s[5] // 24):
                name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", data, s[4] + 24 * i)
                a = strings[4] + name
                self.symbols[data[a : data.index(b"\0", a)].decode()] = (value, size)
                syms.append(value)
        for s in secs:
            if s[1] != 4:
                continue  # relocations: 64-bit absolute (3) and relative (13)
            for i in range(s[5] // 24):
                off, info, add = struct.unpack_from("<QQq", data, s[4] + 24 * i)
                if info & 0xFFFFFFFF not in (3, 13):
                    raise BadCodeObject(f"relocation type {info & 0xFFFFFFFF}")
                value = (
                    self.image.address + add + (syms[info >> 32] if info & 0xFFFFFFFF == 3 else 0)
                )
                ctypes.memmove(self.image.address + off, struct.pack("<Q", value), 8)
        self.kernels: dict[str, Kernel] = {}
        for m in meta["amdhsa.kernels"]:
            kd = self.symbols[m[".symbol"]][0]
            raw = ctypes.string_at(self.image.address + kd, 64)
            entry, (r1, r2, props) = (
                kd + struct.unpack_from("<q", raw, 16)[0],
                struct.unpack_from("<IIH", raw, 48),
            )
            self.kernels[m[".name"]] = Kernel(
                m[".name"], m, entry, self.symbols.get(m[".name"], (0, 0))[1], r1, r2, props
            )


def resources(co: CodeObject) -> str:
    """A table of what each kernel takes: registers, spills, private memory, LDS, largest block."""
    keys = {
        "vgpr": ".vgpr_count",
        "agpr": ".agpr_count",
        "sgpr": ".sgpr_count",
        "vspill": ".vgpr_spill_count",
        "sspill": ".sgpr_spill_count",
        "private": ".private_segment_fixed_size",
        "lds": ".group_segment_fixed_size",
        "block": ".max_flat_workgroup_size",
        "wave": ".wavefront_size",
    }
    rows = [
        [name, *(str(k.meta.get(v, 0)) for v in keys.values())]
        for name, k in sorted(co.kernels.items())
    ]
    return "\n".join(
        r[0].ljust(20) + "".join(c.rjust(9) for c in r[1:]) for r in [[co.target, *keys], *rows]
    )


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(resources(CodeObject(Path(path).read_bytes())))
