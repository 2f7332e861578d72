"""The targets that can be run: which of the emulator's families, and how a wave begins."""

from __future__ import annotations

from dataclasses import dataclass

from code_object import BadCodeObject

FAMILY = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}


@dataclass(frozen=True)
class Target:
    """`family` is the emulator's name of the instruction set, `wave` counts lanes."""

    name: str
    family: str

    @property
    def wave(self) -> int:
        return 64 if self.family == "cdna" else 32

    @property
    def packed_ids(self) -> bool:
        """Work-item ids come as 10 bits each in v0, not in v0, v1 and v2."""
        return self.name not in ("gfx906", "gfx908")

    @property
    def accumulators(self) -> bool:
        """The emulator keeps a second file of vector registers."""
        return self.family == "cdna"

    @property
    def flushes_halves(self) -> bool:
        """MFMA takes denormal float16 for zero: so MI200, by AMD's documentation; not MI300."""
        return self.name == "gfx90a"


def target_named(name: str) -> Target:
    """Raises BadCodeObject: the emulator has no such target."""
    family = FAMILY.get(name[:-2] if name.startswith("gfx1") else name[:4])
    if family is None or len(name) != (7 if name.startswith("gfx1") else 6):
        raise BadCodeObject(f"no emulation for {name}")
    return Target(name, family)
