"""The table of device ids against pci.ids: by the chip's name, which says the architecture."""

import inspect
import re
from pathlib import Path

import pytest
from flatwake_operator.children import architectures
from flatwake_operator.children.architectures import DEVICE_IDS
from flatwake_service.manifest import Architecture

EXCERPT = Path(__file__).parent / "data" / "pci.ids"
INSTALLED = Path("/usr/share/misc/pci.ids")
CHIPS = {
    "Vega 20": Architecture.GFX906,
    "Arcturus": Architecture.GFX908,
    "Aldebaran": Architecture.GFX90A,
    "MI300": Architecture.GFX942,
    "Navi 21": Architecture.GFX1030,
    "Navi 31": Architecture.GFX1100,
    "Strix Halo": Architecture.GFX1151,
    "Navi 44": Architecture.GFX1200,
    "Navi 48": Architecture.GFX1201,
}
ALL = [(a, device) for a, devices in DEVICE_IDS.items() for device in devices]


def known(path: Path) -> dict[str, str]:
    """Chip names by device id, of vendor 1002."""
    text = path.read_text(errors="replace")
    if path == INSTALLED:
        text = text[re.search(r"^1002 ", text, re.M).start() :]  # type: ignore[union-attr]
        text = text[: re.search(r"\n1003 ", text).start()]  # type: ignore[union-attr]
    return dict(re.findall(r"^\t([0-9a-f]{4})  (.*)$", text, re.M))


@pytest.mark.parametrize("path", [EXCERPT, INSTALLED], ids=["excerpt", "installed"])
def test_ids_that_are_known_are_of_their_chip(path: Path) -> None:
    names = known(path if path.exists() else EXCERPT)
    found = 0
    for architecture, device in ALL:
        chip = next((chip for chip in CHIPS if chip in names.get(device, "")), None)
        if chip is not None:
            found += 1
            assert CHIPS[chip] is architecture, f"{device} is {names[device]}"
    assert found >= 11


def test_the_others_carry_their_source() -> None:
    names = known(EXCERPT)
    lines = inspect.getsource(architectures).splitlines()
    for _, device in ALL:
        if device not in names:
            (line,) = (line for line in lines if f'"{device}"' in line)
            assert re.search(r"# .*: \w+", line), device


def test_no_id_is_of_two_architectures() -> None:
    devices = [device for _, device in ALL]
    assert len(devices) == len(set(devices))
    assert set(DEVICE_IDS) == set(Architecture)
