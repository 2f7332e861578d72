"""Every op on a real device against the reference: `python3 check_device.py --backend cuda`.

Needs numpy alone, so that it runs where nothing can be installed. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from device_checks import CHECKS, LARGE
from flatwake_kernels.backend import Backend
from flatwake_kernels.backends import open_backend
from flatwake_kernels.native import NativeBackend
from gpu_cases import CASES
from op_bench import SEED
from op_case import compare, run


def check_cases(backend: Backend, reference: Backend) -> list[str]:
    """What differs, one line a case."""
    failures = []
    for case in CASES:
        try:
            compare(case, run(case, backend), run(case, reference))
        except Exception as error:  # noqa: BLE001 - every kind of failure is a line of the report
            failures.append(f"{case.name}: {type(error).__name__}: {error}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "hip", "emulation"])
    options = parser.parse_args()
    reference = open_backend("reference")
    print("seed", SEED, "numpy", np.__version__)
    failures = []
    checks = CHECKS if options.backend == "emulation" else CHECKS + LARGE
    for matrix in ("1", "0"):
        backend = NativeBackend(options.backend, settings={"matrix": matrix})
        start = time.perf_counter()
        found = check_cases(backend, reference)
        for check in checks:
            try:
                check(backend, reference)
            except Exception as error:  # noqa: BLE001 - as above
                found.append(f"{check.__name__}: {type(error).__name__}: {error}")
        total = len(CASES) + len(checks)
        print(
            f"{backend.device.name}, matrix units {matrix}: {total - len(found)} of {total} agree "
            f"({time.perf_counter() - start:.0f} s)"
        )
        failures += found
        backend.close()
    for line in failures:
        print("FAILED", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
