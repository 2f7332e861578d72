"""Single instructions against numpy: what the emulator alone has wrong, and these kernels need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from amd_isa import Emulator
from target import Target

SOURCE = Path(__file__).with_suffix(".hip")
sys.path.append(str(SOURCE.parents[3] / "kernels" / "tools"))
from device_code import find_clang  # noqa: E402 - found by the line above

DENORMAL, SMALLEST, LARGEST = 5.96046448e-8, 6.103515625e-5, 65504.0  # float16
HARD = (
    *(0.0, -0.0, DENORMAL, -3 * DENORMAL, SMALLEST - DENORMAL, SMALLEST),
    *(-1.0, LARGEST, np.inf, -np.inf),
)


class Trials:
    """Each method runs one instruction and raises AssertionError where it departs."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target, self._seed = target, seed
        self._random = np.random.default_rng(seed)
        with TemporaryDirectory() as folder:
            out = Path(folder) / "instructions.co"
            command = find_clang().command(SOURCE, target.name, out)
            subprocess.run(command, check=True, capture_output=True)
            self._emulator = Emulator(out.read_bytes())

    def all(self) -> dict[str, Callable[[], None]]:
        """By name, those that the target has."""
        found = {
            "v_cvt_f16_f32": self.narrows,
            "v_cvt_f32_f16": self.widens,
            "v_add_f16": self.adds,
            "v_cmp_lt_f16": self.compares,
        }
        if self.target.name in ("gfx90a", "gfx942"):
            found["v_mfma_f32_16x16x16_f16"] = self.multiplies
            found["ds_write_b128 of accumulators"] = self.keeps
        return found

    def narrows(self) -> None:
        x = self._values().astype(np.float32) * np.float32(1.01)
        with np.errstate(over="ignore"):
            wanted = x.astype(np.float16).view(np.uint16).astype(np.uint32)
        self._check("narrow", x, x, wanted)

    def widens(self) -> None:
        x = self._values()
        self._check("widen", _words(x, self._noise()), x, x.astype(np.float32))

    def adds(self) -> None:
        x, y = self._values(), np.abs(self._values()[::-1])
        x[np.isinf(x)] = 1
        with np.errstate(over="ignore"):
            wanted = (x + y).view(np.uint16).astype(np.uint32)
        self._check("add", _words(x, self._noise()), _words(y, self._noise()), wanted)

    def compares(self) -> None:
        x, y = self._values(), self._values()[::-1]
        wanted = (x < y).astype(np.uint32)
        self._check("less", _words(x, self._noise()), _words(y, self._noise()), wanted)

    def multiplies(self) -> None:
        """Lane l holds columns 4 (l / 16) on of row l % 16, and of the result those as rows."""
        rows = [self._random.standard_normal((16, 16)).astype(np.float16) for _ in range(2)]
        rows[0][3, :4] = DENORMAL, SMALLEST - DENORMAL, 0, LARGEST
        rows[0][5, 7], rows[1][9, 2], rows[1][11, 12] = np.inf, -np.inf, np.nan
        given = [r.reshape(16, 4, 4).transpose(1, 0, 2).copy() for r in rows]
        if self.target.flushes_halves:
            rows = [np.where(np.abs(r) < SMALLEST, np.float16(0), r) for r in rows]
        with np.errstate(invalid="ignore"):
            wanted = rows[0].astype(np.float64) @ rows[1].astype(np.float64).T
        wanted = wanted.reshape(4, 4, 16).transpose(0, 2, 1) + np.arange(1, 5)
        wanted = np.ascontiguousarray(wanted, np.float32)
        self._check("multiply", *given, wanted, tolerance=1e-6)

    def keeps(self) -> None:
        x = self._random.standard_normal((64, 4)).astype(np.float32)
        self._check("keep", x, x, x)

    def _values(self) -> np.ndarray:
        """float16 [64], any bits but those of NaN, the hard ones among them."""
        x = self._random.integers(0, 1 << 16, 64, dtype=np.uint16).view(np.float16)
        x = np.where(np.isnan(x), np.float16(2), x)
        x[: len(HARD)] = np.array(HARD, np.float16)
        return x

    def _noise(self) -> np.ndarray:
        return self._random.integers(0, 1 << 16, 64, dtype=np.uint32)

    def _check(
        self, name: str, x: np.ndarray, y: np.ndarray, wanted: np.ndarray, tolerance: float = 0
    ) -> None:
        found = np.zeros_like(wanted)
        self._emulator.launch(name, (1, 1, 1), (64, 1, 1), [x, y, found], seed=self._seed)
        same = (found == wanted) | ((found != found) & (wanted != wanted))
        if tolerance:
            with np.errstate(invalid="ignore"):
                same |= np.abs(found - wanted) <= tolerance * np.maximum(1, np.abs(wanted))
        wrong = np.argwhere(~same)
        assert not len(wrong), (
            f"{name}{wrong[0].tolist()} is {found[tuple(wrong[0])]}, "
            f"wanted {wanted[tuple(wrong[0])]}; {len(wrong)} differ"
        )


def _words(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """uint32: float16 `low` below, 16 bits of noise above, which nothing may come of."""
    return low.view(np.uint16).astype(np.uint32) | high << 16
