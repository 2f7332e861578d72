"""The manifest's reference page, made from the models."""

from collections.abc import Iterator
from typing import Any

from flatwake_service.manifest.arguments import IGNORED_BY_UP

from flatwake_operator.crd import COLUMNS, schema

HEAD = """# The manifest

<!-- Made from flatwake_service.manifest by `make generated`; edit the models. -->

`apiVersion: flatwake.dev/v1alpha1`, `kind: InferenceServer`. The shortest one:

```yaml
apiVersion: flatwake.dev/v1alpha1
kind: InferenceServer
metadata:
  name: qwen
spec:
  model:
    source: hf://Qwen/Qwen3-4B
```

Quantities (`20Gi`) and durations (`90s`, `1m30s`) are strings. A field that doesn't exist is
refused, by `flatwake up` with the nearest one that does. Fields marked **up: no** mean nothing
without a cluster; `flatwake up` lists those that a file sets.

"""


def page() -> str:
    """The whole page."""
    whole = schema()
    spec = whole["properties"]["spec"]
    status = whole["properties"]["status"]
    parts = [HEAD, *_section("spec", spec), "\n## Rules\n\n", RULES_TEXT]
    parts += [f"- `{path or 'metadata'}`: {message}\n" for path, message in _rules("", whole)]
    parts += ["\n", *_section("status", status), "\n## Columns of `kubectl get infs`\n\n"]
    parts += ["| column | from |\n|---|---|\n"]
    parts += [f"| {name} | `{path}` |\n" for name, _, path, _ in COLUMNS]
    return "".join(parts)


RULES_TEXT = """What the API server refuses besides wrong types and ranges, with its own words:

"""


def _section(name: str, node: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
    for path, schema_, required in _fields(node, ""):
        default = "required" if required else _default(schema_)
        local = any(path == ignored or path.startswith(f"{ignored}.") for ignored in IGNORED_BY_UP)
        note = " **up: no**" if name == "spec" and local else ""
        text = schema_.get("description", "").replace("|", "\\|")
        yield f"| `{path}` | {_type(schema_)} | {default} | {text}{note} |\n"


def _fields(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, inner in node.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, inner, name in node.get("required", [])
        if inner.get("type") == "array":
            yield from _fields(inner["items"], f"{path}[].")
        else:
            yield from _fields(inner, f"{path}.")


def _rules(prefix: str, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for rule in node.get("x-kubernetes-validations", []):
        yield prefix, rule["message"]
    for name, inner in node.get("properties", {}).items():
        yield from _rules(f"{prefix}.{name}" if prefix else name, inner)
        if "items" in inner:
            yield from _rules(f"{prefix}.{name}[]", inner["items"])


def _default(node: dict[str, Any]) -> str:
    default = node.get("default")
    return "" if default in (None, "") or isinstance(default, dict) else f"`{_plain(default)}`"


def _plain(value: Any) -> str:
    return f"[{', '.join(map(_plain, value))}]" if isinstance(value, list) else str(value)


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " \\| ".join(f"`{choice}`" for choice in node["enum"])
    if node["type"] == "array":
        return f"list of {_type(node['items'])}"
    if node["type"] == "object" and "additionalProperties" in node:
        return "map of strings"
    if "minimum" in node or "maximum" in node:
        return f"{node['type']}, {node.get('minimum', '')} to {node.get('maximum', '')}"
    return str(node["type"])
