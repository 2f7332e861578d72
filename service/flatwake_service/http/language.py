"""The model's language: messages and text to token ids, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from flatwake_service.errors import InvalidText, TemplateError, TextError
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.schema import Message
from flatwake_service.text import (
    ChatTemplate,
    SamplingDefaults,
    Tokenizer,
    load_sampling_defaults,
    load_template,
    load_tokenizer,
)
from flatwake_service.weights import open_checkpoint

T = TypeVar("T")

OPENAI = SamplingDefaults()

THREADS = 2
"""A huge prompt must not hold up everyone else's."""

_TAKEN = frozenset({"messages", "tools", "add_generation_prompt", "seconds", "self"})


class Language:
    """A tokenizer with its chat template, which a model may lack, and the model's own sampling."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        sampling: SamplingDefaults = OPENAI,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.sampling = sampling
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="text")

    async def chat(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The prompt for a conversation. Raises ApiError."""
        template = self._usable(variables or {})

        def encode() -> list[int]:
            text = template.render(
                [_plain(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **(variables or {}),
            )
            return self.tokenizer.encode(text, add_special=False)

        return await self._off_loop(encode, "messages")

    async def text(self, text: str, *, add_special: bool, param: str = "prompt") -> list[int]:
        """A plain prompt's ids. Raises ApiError."""
        return await self._off_loop(
            lambda: self.tokenizer.encode(text, add_special=add_special), param
        )

    async def decode(self, ids: Sequence[int]) -> str:
        return await self._off_loop(
            lambda: self.tokenizer.decode(ids, skip_special=False), "tokens"
        )

    async def _off_loop(self, work: Callable[[], T], param: str) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TemplateError as error:
            raise ApiError(Code.CHAT_TEMPLATE_FAILED, str(error), param=param) from error
        except InvalidText as error:
            raise ApiError(Code.INVALID_TEXT, str(error), param=param) from error
        except TextError as error:
            raise ApiError(Code.INVALID_VALUE, str(error), param=param) from error

    def _usable(self, variables: Mapping[str, Any]) -> ChatTemplate:
        if self.template is None:
            raise ApiError(
                Code.CHAT_TEMPLATE_FAILED,
                "the model has no chat template; use /v1/completions, or serve it with "
                "--chat-template",
            )
        for name in variables:
            if name in _TAKEN:
                raise ApiError(
                    Code.INVALID_VALUE,
                    f"'chat_template_kwargs' can't set '{name}'",
                    param="chat_template_kwargs",
                )
        return self.template


def load_language(model: Path, template: Path | None) -> Language:
    """A model's own tokenizer and template; a file may replace the template.

    Takes a second or two. Raises CheckpointError, TokenizerError, TemplateError.
    """
    checkpoint = open_checkpoint(model)
    tokenizer = load_tokenizer(checkpoint)
    sampling = load_sampling_defaults(checkpoint)
    if template is None:
        return Language(tokenizer, load_template(checkpoint, tokenizer.names), sampling)
    try:
        source = template.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(
            f"the chat template {template} can't be read: {error}",
            cure="give --chat-template a readable text file",
        ) from error
    return Language(tokenizer, ChatTemplate(source, tokenizer.names), sampling)


def _plain(message: Message) -> dict[str, str]:
    """A message as templates know it. Parts become lines; `developer` is the same as `system`."""
    content = message.content or ""
    if isinstance(content, list):
        content = "\n".join(part.text for part in content)
    plain = {"role": message.role, "content": content}
    if message.role == "developer":
        plain["role"] = "system"
    if message.name is not None:
        plain["name"] = message.name
    return plain
