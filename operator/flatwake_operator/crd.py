"""The CustomResourceDefinition, made from the manifest's models.

Structural OpenAPI v3 as the API server asks for it: nothing by reference, defaults in place, CEL
rules with their messages. Empty defaults are left out, since they'd only be noise in `kubectl get`.
"""

from typing import Any

from flatwake_service.manifest.describe import field_texts, model_text
from flatwake_service.manifest.documents import models_in
from flatwake_service.manifest.part import Fragment, Part
from flatwake_service.manifest.spec import KIND, PLURAL, InferenceServer
from pydantic import BaseModel

Schema = dict[str, Any]

GROUP = "flatwake.dev"
VERSION = "v1alpha1"
NAME = f"{PLURAL}.{GROUP}"

COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Answers requests."),
    ("Model", "string", ".status.model.name", "The name that clients ask for."),
    ("Percent", "integer", ".status.model.percent", "How much is fetched and loaded."),
    ("Accelerator", "string", ".status.accelerator.backend", "What the pods run on."),
    ("Endpoint", "string", ".status.endpoint", "Where clients send requests."),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Ready")].reason',
        "Why it is ready or not; kubectl describe says what to do.",
    ),
    ("Age", "date", ".metadata.creationTimestamp", ""),
)


def definition() -> Schema:
    """The CRD, without the chart's annotations."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["infs"],
                "categories": ["flatwake"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
                }
            ],
        },
    }


def schema() -> Schema:
    """The object's schema."""
    return _Builder(InferenceServer).whole()


def _column(name: str, kind: str, path: str, text: str) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return column | ({"description": text} if text else {})


def models_by_name(root: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Every model that a root holds, by class name."""
    found: dict[str, type[BaseModel]] = {}
    waiting = [root]
    while waiting:
        model = waiting.pop()
        if model.__name__ not in found:
            found[model.__name__] = model
            for info in model.model_fields.values():
                waiting.extend(models_in(info.annotation))
    return found


class _Builder:
    """Turns pydantic's JSON schema (references, anyOf null) into a structural one."""

    def __init__(self, root: type[BaseModel]) -> None:
        self.models = models_by_name(root)
        self.raw = root.model_json_schema(by_alias=True)
        self.definitions: dict[str, Schema] = self.raw["$defs"]
        self.root = root

    def whole(self) -> Schema:
        schema = self.model(self.root, self.raw)
        for name in ("apiVersion", "kind"):
            schema["properties"][name] = {"type": "string"}
        # The API server's own; only the name may be looked at.
        schema["properties"]["metadata"] = {"type": "object"}
        schema["required"] = ["spec"]
        return schema

    def model(self, model: type[BaseModel], raw: Schema) -> Schema:
        texts = field_texts(model) if model is not Fragment else {}
        schema: Schema = {"description": model_text(model), "type": "object"}
        properties = {}
        for name, info in model.model_fields.items():
            alias = info.alias or name
            properties[alias] = self.field(raw["properties"][alias], texts.get(name, ""))
        if properties:
            schema["properties"] = properties
        if raw.get("required"):
            schema["required"] = list(raw["required"])
        if issubclass(model, Fragment):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if issubclass(model, Part) and model.rules:
            schema["x-kubernetes-validations"] = [
                {"rule": rule.cel, "message": rule.message} for rule in model.rules
            ]
        return schema

    def field(self, raw: Schema, text: str) -> Schema:
        schema = self.node(raw)
        if text:
            schema = {"description": text} | {k: v for k, v in schema.items() if k != "description"}
        default = raw.get("default")
        if schema.get("type") == "object":
            if default is not None and (whole := _defaults(schema)):
                schema["default"] = whole
        elif default not in (None, []):
            schema["default"] = default
        return schema

    def node(self, raw: Schema) -> Schema:
        if "$ref" in raw:
            name = raw["$ref"].rsplit("/", 1)[-1]
            if name in self.models:
                return self.model(self.models[name], self.definitions[name])
            return self.node(self.definitions[name])
        if "anyOf" in raw:
            (chosen,) = (option for option in raw["anyOf"] if option.get("type") != "null")
            return self.node(chosen)
        kept = ("type", "format", "enum", "pattern", "multipleOf", "minimum", "maximum")
        sizes = ("minLength", "maxLength", "minItems", "maxItems", "maxProperties")
        lists = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
        schema: Schema = {key: raw[key] for key in kept + sizes + lists if key in raw}
        if schema.get("type") == "integer":
            schema["format"] = "int64"
        if "items" in raw:
            schema["items"] = self.node(raw["items"])
        if isinstance(raw.get("additionalProperties"), dict):
            schema["additionalProperties"] = self.node(raw["additionalProperties"])
        return schema


def _defaults(schema: Schema) -> Schema:
    # Whole, not {}: the API server checks an object's default by its rules before it fills it in.
    inner = schema.get("properties", {})
    return {name: node["default"] for name, node in inner.items() if "default" in node}


def prune(thing: Any, node: Schema, path: str = "") -> tuple[Any, list[str]]:
    """What this version knows of an object, and the paths of what it doesn't.

    The API server has pruned by the installed CRD already: what is left over is a newer CRD's.
    """
    if isinstance(thing, list) and "items" in node:
        pairs = [prune(item, node["items"], f"{path}[]") for item in thing]
        return [item for item, _ in pairs], [fault for _, faults in pairs for fault in faults]
    if not isinstance(thing, dict) or "properties" not in node:
        return thing, []
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return thing, []
    kept, unknown = {}, []
    for key, value in thing.items():
        inside = f"{path}.{key}" if path else key
        if key in node["properties"]:
            kept[key], below = prune(value, node["properties"][key], inside)
            unknown += below
        else:
            unknown.append(inside)
    return kept, unknown
