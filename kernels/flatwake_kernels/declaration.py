"""How an op declares its parameters.

One class body gives the ctypes struct that crosses the C ABI, the text of the generated header,
and the checks of shapes and types when a call is recorded. Sizes and types that can be derived
from the buffers are derived.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn

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
    _binder: ClassVar[_Binder]

    def __init_subclass__(cls, reference: str) -> None:
        own = {k: v for k, v in vars(cls).items() if isinstance(v, Field)}
        cls.fields = {**getattr(cls, "fields", {}), **own}
        cls.name = _snake(cls.__name__)
        cls.reference = reference
        cls.number = len(Op.registry)
        cls.struct = _structure(f"fw_{cls.name}_params", cls.fields)
        cls._binder = _Binder(cls.name, cls.fields)
        Op.registry.append(cls)

    def __init__(self, **values: Value) -> None:
        unknown = values.keys() - self.fields.keys()
        if unknown:
            raise TypeError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        self.params = self.struct(**self._binder.bind(values))
        # A recorded call holds addresses: what they point to must outlive it.
        self.keep = tuple(v for v in values.values() if isinstance(v, (Buffer, LinearHandle)))
        self.values = values


class _Binder:
    """From values to a struct's numbers: a model has thousands of calls, all made at start-up, so
    what the declaration alone decides is decided once.
    """

    def __init__(self, op: str, fields: Mapping[str, Field]) -> None:
        self.op = op
        self.names = tuple(fields)
        self.defaults: dict[str, int | float] = {
            name: kind.default
            for name, kind in fields.items()
            if isinstance(kind, (Int, Float)) and kind.default is not None
        }
        self.numbers = tuple(
            n for n, k in fields.items() if isinstance(k, (Int, Float, Size, Type))
        )
        self.rest = tuple(
            (n, k) for n, k in fields.items() if not isinstance(k, (Int, Float, Type))
        )

    def bind(self, values: Mapping[str, Value]) -> dict[str, int | float]:
        bound = self.defaults.copy()
        for name in self.numbers:
            value = values.get(name)
            if value is not None:
                assert isinstance(value, (int, float)), f"{self.op}.{name} wants a number"
                bound[name] = value
        for name, kind in self.rest:
            if isinstance(kind, Tensor):
                bound[name] = self._tensor(name, kind, values.get(name), bound)
            elif isinstance(kind, Records):
                bound[name] = self._records(name, kind, values.get(name), bound)
            elif isinstance(kind, Handle):
                handle = values.get(name)
                if not isinstance(handle, LinearHandle):
                    raise TypeError(f"{self.op} needs {name}, a prepared linear layer")
                bound[name] = handle.address
            elif isinstance(kind, Size) and kind.default is not None:
                bound.setdefault(name, kind.default)
        if len(bound) < len(self.names):
            missing = [name for name in self.names if name not in bound]
            raise TypeError(f"{self.op} needs {', '.join(missing)}")
        return bound

    def _tensor(self, name: str, kind: Tensor, value: Value, bound: dict[str, int | float]) -> int:
        if value is None and kind.optional:
            return 0
        if not isinstance(value, Buffer):
            if value is None:
                raise TypeError(f"{self.op} needs {name}")
            raise TypeError(f"{self.op}.{name} wants a buffer, not {type(value).__name__}")
        if len(value.shape) != len(kind.shape):
            raise TypeError(f"{self.op}.{name} has shape {value.shape}, wanted {kind.shape}")
        for dimension, size in zip(kind.shape, value.shape, strict=True):
            expected = (
                dimension if isinstance(dimension, int) else bound.setdefault(dimension, size)
            )
            if expected != size:
                self._contradicts(name, dimension, size, expected)
        if isinstance(kind.dtype, str):
            number = int(value.dtype)
            expected = bound.setdefault(kind.dtype, number)
            if expected != number:
                self._contradicts(name, kind.dtype, number, expected)
        elif kind.dtype is not value.dtype:
            wanted = kind.dtype.name
            raise TypeError(f"{self.op}.{name} is {value.dtype.name}, wanted {wanted}")
        return value.ptr

    def _records(
        self, name: str, kind: Records, value: Value, bound: dict[str, int | float]
    ) -> int:
        if not isinstance(value, Buffer):
            raise TypeError(f"{self.op} needs {name}")
        size = ctypes.sizeof(kind.record)
        count, rest = divmod(value.nbytes, size)
        if rest:
            raise TypeError(f"{self.op}.{name} does not hold whole {kind.record.__name__}")
        expected = bound.setdefault(kind.count, count)
        if expected != count:
            self._contradicts(name, kind.count, count, expected)
        return value.ptr

    def _contradicts(
        self, name: str, dimension: str | int, size: int, expected: int | float
    ) -> NoReturn:
        raise TypeError(f"{self.op}.{name}: {dimension} is {size} here, {expected} elsewhere")


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
