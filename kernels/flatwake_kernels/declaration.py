"""How an op declares its parameters.

One class body gives the ctypes struct that crosses the C ABI, the text of the generated header,
and the checks of shapes and types when a call is recorded. Sizes and types that can be derived
from the buffers are derived.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import ClassVar

from flatwake_kernels.buffer import Buffer
from flatwake_kernels.dtype import Dtype


@dataclass(frozen=True)
class Tensor:
    """A buffer: its dimensions (names of `Size` fields, or numbers) and its type.

    `dtype` is a type, or the name of the `Type` field that holds it; `access` is in, out or inout.
    """

    shape: tuple[str | int, ...]
    dtype: Dtype | str
    access: str
    optional: bool = False
    doc: str = ""


@dataclass(frozen=True)
class Records:
    """An array of ABI structs, `count` of them."""

    record: type[ctypes.Structure]
    count: str
    doc: str = ""


@dataclass(frozen=True)
class Handle:
    """A prepared linear layer."""

    doc: str = ""


@dataclass(frozen=True)
class Size:
    """An int32 bound by the shapes of buffers, or given; `default` where no buffer binds it."""

    doc: str = ""
    default: int | None = None


@dataclass(frozen=True)
class Type:
    """An int32 `Dtype`, bound by the types of buffers."""

    doc: str = ""


@dataclass(frozen=True)
class Int:
    default: int | None = None
    doc: str = ""


@dataclass(frozen=True)
class Float:
    default: float | None = None
    doc: str = ""


Field = Tensor | Records | Handle | Size | Type | Int | Float


def read(*shape: str | int, dtype: Dtype | str, optional: bool = False, doc: str = "") -> Tensor:
    """A buffer that the op only reads."""
    return Tensor(shape, dtype, "in", optional, doc)


def write(*shape: str | int, dtype: Dtype | str, optional: bool = False, doc: str = "") -> Tensor:
    """A buffer that the op overwrites."""
    return Tensor(shape, dtype, "out", optional, doc)


def update(*shape: str | int, dtype: Dtype | str, optional: bool = False, doc: str = "") -> Tensor:
    """A buffer that the op reads and writes."""
    return Tensor(shape, dtype, "inout", optional, doc)


class LinearHandle:
    """Weights that a backend prepared. `address` is the library's; `rows` and `columns` are known.

    `bytes` is what a step that uses the handle has to read of it.
    """

    def __init__(self, address: int, rows: int, columns: int, nbytes: int, owner: object) -> None:
        self.address = address
        self.rows = rows
        self.columns = columns
        self.bytes = nbytes
        self.owner = owner


Value = Buffer | LinearHandle | int | float | None


class Op:
    """One recorded call. Subclasses declare fields; instances hold a filled `params` struct."""

    fields: ClassVar[dict[str, Field]]
    struct: ClassVar[type[ctypes.Structure]]
    number: ClassVar[int]
    name: ClassVar[str]
    reference: ClassVar[str]
    registry: ClassVar[list[type[Op]]] = []

    def __init_subclass__(cls, reference: str) -> None:
        own = {k: v for k, v in vars(cls).items() if isinstance(v, Field)}
        cls.fields = {**getattr(cls, "fields", {}), **own}
        cls.name = _snake(cls.__name__)
        cls.reference = reference
        cls.number = len(Op.registry)
        cls.struct = _structure(f"fw_{cls.name}_params", cls.fields)
        Op.registry.append(cls)

    def __init__(self, **values: Value) -> None:
        unknown = sorted(set(values) - set(self.fields))
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(unknown)}")
        bound = _bind(self.name, self.fields, values)
        self.params = self.struct(**bound)
        # A recorded call holds addresses: what they point to must outlive it.
        self.keep = tuple(v for v in values.values() if isinstance(v, Buffer | LinearHandle))
        self.values = values


def _bind(op: str, fields: dict[str, Field], values: dict[str, Value]) -> dict[str, int | float]:
    bound: dict[str, int | float] = {}
    for name, kind in fields.items():
        value = values.get(name)
        if isinstance(kind, Int | Float | Size | Type):
            if value is None and isinstance(kind, Int | Float):
                value = kind.default
            if value is not None:
                assert isinstance(value, int | float), f"{op}.{name} wants a number"
                bound[name] = value
    for name, kind in fields.items():
        value = values.get(name)
        if isinstance(kind, Tensor):
            if value is None:
                if not kind.optional:
                    raise TypeError(f"{op} needs {name}")
                bound[name] = 0
                continue
            if not isinstance(value, Buffer):
                raise TypeError(f"{op}.{name} wants a buffer, not {type(value).__name__}")
            _unify_shape(f"{op}.{name}", kind, value, bound)
            bound[name] = value.ptr
        elif isinstance(kind, Records):
            if not isinstance(value, Buffer):
                raise TypeError(f"{op} needs {name}")
            size = ctypes.sizeof(kind.record)
            if value.nbytes % size:
                raise TypeError(f"{op}.{name} does not hold whole {kind.record.__name__}")
            _unify(f"{op}.{name}", kind.count, value.nbytes // size, bound)
            bound[name] = value.ptr
        elif isinstance(kind, Handle):
            if not isinstance(value, LinearHandle):
                raise TypeError(f"{op} needs {name}, a prepared linear layer")
            bound[name] = value.address
        elif isinstance(kind, Size) and name not in bound and kind.default is not None:
            bound[name] = kind.default
    missing = [n for n, k in fields.items() if n not in bound]
    if missing:
        raise TypeError(f"{op} needs {', '.join(missing)}")
    return bound


def _unify_shape(where: str, kind: Tensor, value: Buffer, bound: dict[str, int | float]) -> None:
    if len(value.shape) != len(kind.shape):
        raise TypeError(f"{where} has shape {value.shape}, wanted {kind.shape}")
    for dimension, size in zip(kind.shape, value.shape, strict=True):
        _unify(where, dimension, size, bound)
    if isinstance(kind.dtype, str):
        _unify(where, kind.dtype, int(value.dtype), bound)
    elif kind.dtype != value.dtype:
        raise TypeError(f"{where} is {value.dtype.name}, wanted {kind.dtype.name}")


def _unify(where: str, name: str | int, size: int, bound: dict[str, int | float]) -> None:
    expected = bound.setdefault(name, size) if isinstance(name, str) else name
    if expected != size:
        raise TypeError(f"{where}: {name} is {size} here, {expected} elsewhere")


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _structure(name: str, fields: dict[str, Field]) -> type[ctypes.Structure]:
    """Eight-byte fields first, then four-byte ones, then what fills the last eight bytes."""
    wide = [n for n, k in fields.items() if isinstance(k, Tensor | Records | Handle)]
    narrow = [n for n, k in fields.items() if n not in wide]
    layout: list[tuple[str, type]] = [(n, ctypes.c_uint64) for n in wide]
    layout += [
        (n, ctypes.c_float if isinstance(fields[n], Float) else ctypes.c_int32) for n in narrow
    ]
    if len(narrow) % 2:
        layout.append(("reserved", ctypes.c_int32))
    return type(name, (ctypes.Structure,), {"_fields_": layout})
