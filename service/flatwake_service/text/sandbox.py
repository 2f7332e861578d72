"""A Jinja environment for templates that come with a model: they read, and always end.

Jinja's immutable sandbox keeps a template away from Python's insides. What it leaves open is
closed here: time (every loop and call looks at the clock) and size (nothing that a template
computes may outgrow `MAX_CHARACTERS`, and that is checked before it is made).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from flatwake_service.text.bounds import MAX_CHARACTERS, MAX_ITEMS, check, check_size, tick, watched

# Filters that make a string of whatever they are given.
_SPELLING: Final = frozenset(
    {"capitalize", "e", "escape", "forceescape", "indent", "join", "lower", "replace", "safe"}
    | {"string", "title", "trim", "truncate", "upper", "wordcount"}
)
# All that templates use; what is missing here can blow up a value and is used by none.
_FILTERS: Final = frozenset(
    {"abs", "attr", "bool", "count", "d", "default", "dictsort", "first", "float", "groupby"}
    | {"int", "items", "last", "length", "list", "map", "max", "min", "reject", "rejectattr"}
    | {"reverse", "round", "select", "selectattr", "sort", "sum", "unique"}
    | _SPELLING
)
_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "translate"})
_WIDTH: Final = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")


class _Watcher(NodeTransformer):
    """Wraps what every loop runs over, what every `~` makes, and every list that is put together.

    A list that held itself twice, sixty times over, could otherwise be compared or hashed for ever.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (the visitor's protocol)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "a loop")
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._literal(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._literal(node, node.items) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._literal(node, [part for pair in node.items for part in (pair.key, pair.value)])

    def _literal(self, node: nodes.Expr, parts: list[nodes.Expr]) -> nodes.Node:
        self.generic_visit(node)
        if all(isinstance(part, nodes.Const) for part in parts):
            return node
        return _filtered(node, "a part")

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "a part") for part in node.nodes]
        return _filtered(node, "a part")


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    # The names have a space, so that no template can spell them.
    assert isinstance(node, nodes.Expr)
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's text for training: no effect."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's protocol)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)  # what is set in it stays in it


class _Namespace(jinja2.utils.Namespace):
    """`namespace()` without names that begin with an underscore: Python's insides have those."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace can't hold {name[:40]!r}")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """`dict()` without the class behind it."""
    return dict(*args, **kwargs)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled in, with Hugging Face's helpers."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=check_size,
        )
        self.filters = {
            name: _bounded(name, filter_)
            for name, filter_ in self.filters.items()
            if name in _FILTERS
        }
        self.filters |= {"tojson": _to_json, "a loop": watched, "a part": check_size}
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": _now,
            "namespace": _Namespace,
            "dict": _dict,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        watched = _Watcher().visit(tree)
        assert isinstance(watched, nodes.Template)
        return watched

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        tick()
        if operator == "*":
            for a, b in ((left, right), (right, left)):
                if isinstance(a, str | list | tuple) and isinstance(b, int):
                    check(len(a) * max(b, 0), MAX_ITEMS)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                check(left.bit_length() * abs(right), 1 << 12)
        elif operator == "%" and isinstance(left, str):
            if _WIDTH.search(left):
                raise SecurityError("the template formats with a large width")
            values = right if isinstance(right, tuple) else (right,)
            check(len(left) + left.count("%") * sum(_length(v) for v in values))
        elif operator == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            check(len(left) + len(right), MAX_ITEMS)
        result = super().call_binop(context, operator, left, right)
        return check_size(result)

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        tick()
        if isinstance(__obj, LoopContext) and args:
            args = (watched(args[0]), *args[1:])
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            _check_method(owner, getattr(__obj, "__name__", ""), args)
        result = super().call(__context, __obj, *args, **kwargs)
        return check_size(result) if isinstance(result, str) else result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        format_ = super().wrap_str_format(value)
        if format_ is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            text = value.__self__
            if ":" in text:
                raise SecurityError("the template formats with a specification")
            check(len(text) + text.count("{") * sum(_length(v) for v in (*args, *kwargs.values())))
            return format_(*args, **kwargs)

        return bounded


def _length(value: Any) -> int:
    """An upper bound of the text that a value becomes."""
    if isinstance(value, str):
        return len(value)
    check_size(value)
    return 32 if isinstance(value, int | float | bool) or value is None else MAX_CHARACTERS // 64


def _check_method(text: str, name: str, args: tuple[Any, ...]) -> None:
    """Refuse a call of a string's method that would make something too large."""
    if name in _PADDING and args and not (isinstance(args[0], int) and args[0] <= MAX_ITEMS):
        raise SecurityError(f"the template calls {name} with {str(args[0])[:40]}")
    if name == "replace" and len(args) >= 2:
        _check_replace(text, *args[:2])
    if name == "join" and args:
        _check_join(text, args[0])


def _check_replace(text: str, old: Any, new: Any) -> None:
    count = text.count(old) if isinstance(old, str) else 0
    check(len(text) + count * _length(new))


def _check_join(separator: str, items: Any) -> None:
    if isinstance(items, list | tuple):
        check(sum(_length(item) + len(separator) for item in items))


def _bounded(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja's whose text can't grow too large."""
    passed = 1 if hasattr(filter_, "jinja_pass_arg") else 0  # a context comes first

    @wraps(filter_)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        tick()
        value, *rest = args[passed:]
        if name in _SPELLING:
            check_size(value)
        match name:
            case "replace" if len(rest) >= 2:
                _check_replace(str(value), str(rest[0]), rest[1])
            case "join":
                value = list(value)
                separator = str(rest[0] if rest else kwargs.get("d", ""))
                if not rest[1:] and "attribute" not in kwargs:
                    _check_join(separator, value)
                args = (*args[:passed], value, *rest)
            case "indent":
                width = rest[0] if rest else kwargs.get("width", 4)
                size = width if isinstance(width, int) else _length(width)
                check(len(str(value)) + (str(value).count("\n") + 1) * size)
            case "list" | "sort" | "unique" if isinstance(value, str):
                check(len(value), MAX_ITEMS)
        result = filter_(*args, **kwargs)
        return check_size(result) if isinstance(result, str) else result

    return bounded


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, as the models' trainers spelled it: Jinja's own escapes for HTML."""
    check_size(value)
    if indent is not None and not 0 <= indent <= 16:
        raise SecurityError("tojson's indent is at most 16")
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    check(len(text))
    return text


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(format_: str) -> str:
    return datetime.now().strftime(format_)
