"""Chat templates: messages to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from flatwake_service.errors import TemplateError
from flatwake_service.text.bounds import MAX_CHARACTERS, MAX_SECONDS, budget
from flatwake_service.text.sandbox import TemplateSandbox
from flatwake_service.weights import Checkpoint
from flatwake_service.weights.safetensors import read_json

MAX_SOURCE: Final = 1 << 20


class ChatTemplate:
    """A compiled chat template. Safe to use from several threads at once."""

    def __init__(self, source: str, names: Mapping[str, str] | None = None) -> None:
        """Compile `source`; `names` are bos_token and its like. Raises TemplateError."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters")
        self.source = source
        self._names = dict(names or {})
        try:
            self._template = TemplateSandbox().from_string(source)
        # Python's own parser says MemoryError of code that nests too deeply.
        except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError) as error:
            raise TemplateError(f"the chat template doesn't compile: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        seconds: float = MAX_SECONDS,
        **variables: Any,
    ) -> str:
        """The prompt for these messages; encode it with `add_special=False`.

        `variables` are a request's chat_template_kwargs. Takes up to `seconds` of processor time:
        call it off the event loop. Raises TemplateError with what the template says.
        """
        values = {
            **self._names,
            **variables,
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        parts: list[str] = []
        size = 0
        try:
            with budget(seconds):
                for part in self._template.generate(values):
                    parts.append(part)
                    size += len(part)
                    if size > MAX_CHARACTERS:
                        raise TemplateError(
                            f"the chat template writes more than {MAX_CHARACTERS} characters"
                        )
        except TemplateError:
            raise
        except Exception as error:  # the template is the model's code and may raise anything
            raise TemplateError(f"the chat template failed: {_said(error)}") from error
        return "".join(parts)


def _said(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateError):
        return error.message or type(error).__name__
    return f"{type(error).__name__}: {error}"


def load_template(checkpoint: Checkpoint, names: Mapping[str, str]) -> ChatTemplate | None:
    """A checkpoint's chat template, or None; of several, the one called default.

    `names` are the tokenizer's. Raises TemplateError for one that doesn't compile.
    """
    found = (
        _from_metadata(checkpoint.metadata)
        if checkpoint.kind == "gguf"
        else _from_folder(checkpoint.path)
    )
    source = found.get("default")
    return None if source is None else ChatTemplate(source, names)


def _from_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {k.removeprefix(key).removeprefix("."): v for k, v in metadata.items() if key in k}
    return {name or "default": v for name, v in found.items() if isinstance(v, str)}


def _from_folder(folder: Path) -> dict[str, str]:
    """chat_template.jinja, else what tokenizer_config.json or chat_template.json holds."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return {"default": path.read_text("utf-8")}
        except UnicodeDecodeError as error:
            raise TemplateError(f"{path} isn't UTF-8: {error}") from error
    for name in ("tokenizer_config.json", "chat_template.json"):
        if (folder / name).exists():
            value = read_json(folder / name).get("chat_template")
            if isinstance(value, str):
                return {"default": value}
            if isinstance(value, list):
                return {
                    str(item["name"]): item["template"]
                    for item in value
                    if isinstance(item, dict) and isinstance(item.get("template"), str)
                }
    return {}
