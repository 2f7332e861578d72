"""Find, check and load a kernel library, and speak its C ABI."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

import flatwake_kernels
from flatwake_kernels.abi import (
    ABI_VERSION,
    MEMORY,
    UNSUPPORTED,
    Call,
    ContextOptions,
    DeviceInfo,
    LinearInfo,
    WeightView,
)
from flatwake_kernels.abi import MemoryInfo as MemoryStruct
from flatwake_kernels.backend import BackendUnavailable, KernelError, MemoryShort, Unsupported
from flatwake_kernels.header import all_structs

DIRECTORY_VARIABLE = "FLATWAKE_LIBRARY_DIR"

_SIGNATURES: dict[str, tuple[type | None, list[object]]] = {
    "fw_abi_version": (c_int32, []),
    "fw_layout": (c_char_p, []),
    "fw_error": (c_char_p, []),
    "fw_device_count": (c_int32, [POINTER(c_int32)]),
    "fw_context_create": (c_int32, [POINTER(ContextOptions), POINTER(c_void_p)]),
    "fw_context_destroy": (None, [c_void_p]),
    "fw_device": (c_int32, [c_void_p, POINTER(DeviceInfo)]),
    "fw_memory": (c_int32, [c_void_p, POINTER(MemoryStruct)]),
    "fw_supports": (c_int32, [c_void_p, c_int32]),
    "fw_allocate": (c_int32, [c_void_p, c_int64, c_int32, POINTER(c_uint64)]),
    "fw_free": (c_int32, [c_void_p, c_int32, c_uint64]),
    "fw_copy": (c_int32, [c_void_p, c_uint64, c_uint64, c_int64, c_int32]),
    "fw_event_create": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "fw_event_record": (c_int32, [c_void_p]),
    "fw_event_wait": (c_int32, [c_void_p]),
    "fw_event_destroy": (None, [c_void_p]),
    "fw_linear_prepare": (
        c_int32,
        [c_void_p, POINTER(WeightView), c_int32, c_int32, POINTER(c_void_p), POINTER(LinearInfo)],
    ),
    "fw_linear_destroy": (None, [c_void_p]),
    "fw_plan_create": (c_int32, [c_void_p, POINTER(Call), c_int32, POINTER(c_void_p)]),
    "fw_plan_capture": (c_int32, [c_void_p]),
    "fw_plan_run": (c_int32, [c_void_p]),
    "fw_plan_trace": (c_int32, [c_void_p, POINTER(c_double), c_int32]),
    "fw_plan_destroy": (None, [c_void_p]),
    "fw_measure_read": (c_int32, [c_void_p, c_int64, c_int32, POINTER(c_double)]),
}


_ERRORS: dict[int, type[KernelError]] = {UNSUPPORTED: Unsupported, MEMORY: MemoryShort}


class Library:
    """A loaded `libflatwake_<name>`, its layout checked. Calls go by attribute."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise BackendUnavailable(f"{path} does not load: {error}") from error
        for symbol, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(self._dll, symbol)
            except AttributeError:
                raise BackendUnavailable(f"{path} lacks {symbol}: rebuild it") from None
            function.restype, function.argtypes = result, arguments
        version = self._dll.fw_abi_version()
        if version != ABI_VERSION:
            raise BackendUnavailable(
                f"{path} speaks version {version} of the kernel ABI, not {ABI_VERSION}: rebuild it"
            )
        check_layout(str(path), self._dll.fw_layout().decode())

    def call(self, symbol: str, *arguments: object) -> None:
        """Call a function that returns a code.

        Raises:
            KernelError: it returned another code than FW_OK; with the library's own text, and of
                the code's own kind.
        """
        if code := getattr(self._dll, symbol)(*arguments):
            kind = _ERRORS.get(code, KernelError)
            raise kind(self._dll.fw_error().decode(errors="replace"))

    def destroy(self, symbol: str, handle: c_void_p) -> None:
        getattr(self._dll, symbol)(handle)

    def supports(self, context: c_void_p, op: int) -> bool:
        return bool(self._dll.fw_supports(context, op))

    def offers(self, symbol: str) -> bool:
        """Whether the library has a function that the ABI doesn't ask for."""
        return hasattr(self._dll, symbol)

    def device_count(self) -> int:
        """Devices that can be used here.

        Raises:
            BackendUnavailable: there is none; the message says what is missing.
        """
        count = c_int32()
        if self._dll.fw_device_count(byref(count)):
            raise BackendUnavailable(self._dll.fw_error().decode(errors="replace"))
        return count.value


def check_layout(where: str, text: str) -> None:
    """Compare the compiler's layout with ctypes'.

    Raises:
        BackendUnavailable: a struct or a field differs; it is named.
    """
    theirs = {(w[0], w[1]): (int(w[2]), int(w[3])) for w in map(str.split, text.splitlines())}
    ours = dict(_layout())
    for key in [*ours, *theirs]:
        if ours.get(key) != theirs.get(key):
            struct, field = key
            what = struct if field == "-" else f"{struct}.{field}"
            raise BackendUnavailable(
                f"{where} was built for another layout: {what} is {theirs.get(key)} there, "
                f"{ours.get(key)} here (offset or size, size or alignment): rebuild it"
            )


def _layout() -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
    for name, struct in all_structs():
        for field in struct._fields_:
            descriptor = getattr(struct, field[0])
            yield (name, field[0]), (descriptor.offset, descriptor.size)
        yield (name, "-"), (ctypes.sizeof(struct), ctypes.alignment(struct))


def find_library(name: str) -> Path:
    """The file of `libflatwake_<name>`: $FLATWAKE_LIBRARY_DIR, else the package's own folder.

    Raises:
        BackendUnavailable: it was not built; the message says how to.
    """
    file = f"libflatwake_{name}.so"
    folders = _folders()
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    raise BackendUnavailable(
        f"{file} is not in {' or '.join(map(str, folders))}: "
        "install a C++ compiler, then run `make build` in a checkout or `pip install` again"
    )


def _folders() -> Sequence[Path]:
    given = os.environ.get(DIRECTORY_VARIABLE)
    if given:
        return [Path(given)]
    return [Path(p) / "native" for p in flatwake_kernels.__path__]
