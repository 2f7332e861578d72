"""Hold every AMD kernel to its resources: `amd_gate.py [--update] [--write]`.

Compiles all kernels for all targets and fails on a spill, on private (scratch) memory, on generic
loads, on LDS above 64 KiB, or on fewer waves a SIMD than the kernel's floor in
kernels/hip/occupancy.csv. --update raises floors and adds new kernels; a floor is lowered by hand,
with the reason in its last column. --write renews docs/amd.md.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from device_code import AMD_TARGETS, KERNELS, BuildError, CodeObject, compile_all, find_clang

FLOORS = KERNELS / "hip" / "occupancy.csv"
TABLE = KERNELS.parent / "docs" / "amd.md"
LDS_LIMIT = 64 << 10

Floors = dict[str, dict[str, int]]
Reasons = dict[str, str]


def faults(objects: Sequence[CodeObject], floors: Floors) -> Iterator[str]:
    """One line for each thing that a kernel must not do."""
    for code in objects:
        if code.flat:
            yield f"{code.source} for {code.target}: {code.flat} generic loads or stores"
        for r in code.resources:
            where = f"{r.kernel} for {code.target}"
            if r.vgpr_spills or r.sgpr_spills:
                yield f"{where}: {r.vgpr_spills} VGPRs and {r.sgpr_spills} SGPRs are spilled"
            if r.scratch:
                yield f"{where}: {r.scratch} bytes of private memory a lane"
            if r.lds > LDS_LIMIT:
                yield f"{where}: {r.lds} bytes of LDS, more than {LDS_LIMIT}"
            floor = floors.get(r.kernel, {}).get(code.target)
            if floor is None:
                yield f"{where}: no floor in {FLOORS.name}; add it with --update"
            elif r.occupancy < floor:
                yield f"{where}: {r.occupancy} waves a SIMD, its floor is {floor}"


def read_floors() -> tuple[Floors, Reasons]:
    floors: Floors = defaultdict(dict)
    reasons: Reasons = {}
    if FLOORS.exists():
        with FLOORS.open(newline="") as file:
            for row in csv.DictReader(file):
                kernel = row.pop("kernel")
                reasons[kernel] = row.pop("reason")
                floors[kernel] = {t: int(v) for t, v in row.items() if v}
    return floors, reasons


def update_floors(objects: Sequence[CodeObject], floors: Floors, reasons: Reasons) -> None:
    """Raise what has grown, add what is new, drop kernels that are gone."""
    found: Floors = defaultdict(dict)
    for code in objects:
        for r in code.resources:
            floor = floors.get(r.kernel, {}).get(code.target, 0)
            found[r.kernel][code.target] = max(floor, r.occupancy)
    with FLOORS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kernel", *AMD_TARGETS, "reason"])
        for kernel in sorted(found):
            values = [str(found[kernel].get(t, "")) for t in AMD_TARGETS]
            writer.writerow([kernel, *values, reasons.get(kernel, "")])


def render(objects: Sequence[CodeObject], compiler: str) -> str:
    """docs/amd.md."""
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    lds: dict[str, int] = defaultdict(int)
    for code in objects:
        for r in code.resources:
            agprs = f"+{r.agprs}" if r.agprs else ""
            cells[r.kernel][code.target] = f"{r.vgprs}{agprs} · {r.occupancy}"
            lds[r.kernel] = max(lds[r.kernel], r.lds)
    sizes = {t: sum(c.path.stat().st_size for c in objects if c.target == t) for t in AMD_TARGETS}
    lines = [
        "# What the kernels take on AMD GPUs",
        "",
        f"Made by `make amd` with {compiler}. Each cell: vector registers (+ accumulation",
        "registers) · waves a SIMD. No kernel spills, uses private memory or generic loads; the",
        "largest block takes " + f"{max(lds.values())} of 65536 bytes of LDS. Floors are in",
        "`kernels/hip/occupancy.csv`. A dash: the target has no matrix unit that the kernel uses.",
        "",
        "| kernel | LDS | " + " | ".join(AMD_TARGETS) + " |",
        "|---|---|" + "---|" * len(AMD_TARGETS),
    ]
    for kernel in sorted(cells):
        row = " | ".join(cells[kernel].get(t, "–") for t in AMD_TARGETS)
        lines.append(f"| {kernel} | {lds[kernel]} | {row} |")
    total = " | ".join(f"{sizes[t] // 1000} kB" for t in AMD_TARGETS)
    lines.append(f"| code objects |  | {total} |")
    return "\n".join(lines) + "\n"


def summary(objects: Sequence[CodeObject]) -> Iterator[str]:
    yield f"{'target':10}{'kernels':>9}{'most VGPRs':>12}{'least waves':>13}{'most LDS':>10}"
    for target in AMD_TARGETS:
        all_of = [r for c in objects if c.target == target for r in c.resources]
        yield (
            f"{target:10}{len(all_of):9}{max(r.vgprs for r in all_of):12}"
            f"{min(r.occupancy for r in all_of):13}{max(r.lds for r in all_of):10}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    try:
        compiler = find_clang()
        objects = compile_all(compiler, AMD_TARGETS, options.jobs)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    floors, reasons = read_floors()
    if options.update:
        update_floors(objects, floors, reasons)
        floors, reasons = read_floors()
    found = list(faults(objects, floors))
    for line in [*summary(objects), *found]:
        sys.stdout.write(line + "\n")
    text = render(objects, compiler.version)
    if options.write and not found:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(text)
    elif not found and (not TABLE.exists() or TABLE.read_text() != text):
        sys.stdout.write(f"{TABLE.name} is stale: run `make amd-table`\n")
        return 1
    sys.stdout.write(f"{len(found)} faults in {len(objects)} code objects\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
