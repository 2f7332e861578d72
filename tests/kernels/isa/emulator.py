"""The emulator of instructions, tinygrad's: from the checkout that TINYGRAD_CHECKOUT names."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

from code_object import AmdIsaError

MODULE = "test/mockgpu/amd/emu.py"


@functools.cache
def emulator() -> Any:
    """The emulator's module, with its compiler chosen.

    The return bit of atomics is read from each family's own field, and what an accumulator holds is
    stored to LDS from there.
    """
    root = os.environ.get("TINYGRAD_CHECKOUT")
    if not root or not (Path(root) / MODULE).exists():
        raise AmdIsaError(f"TINYGRAD_CHECKOUT must name a tinygrad checkout with {MODULE}")
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
    plain_ds = emu._INST_HANDLERS[emu.irc.DS]

    def ds(inst: Any, ctx: Any) -> Any:
        if iattr(inst, "acc"):
            address = ctx.inst_field(type(inst).addr)

            class Accumulators(emu._Ctx):  # type: ignore[misc, name-defined]
                """All operands but the address are accumulators."""

                __slots__ = ()

                def rvgpr_dyn(self, reg: Any, lane: Any, valid: Any = None) -> Any:
                    read = super().rvgpr_dyn if reg is address else self.raccvgpr_dyn
                    return read(reg, lane, valid)

            ctx.__class__ = Accumulators
        return plain_ds(inst, ctx)

    emu._INST_HANDLERS[emu.irc.DS] = ds
    return emu
