"""The typed errors of the service: the user's or the world's fault, never ours.

    FlatwakeError
    ├── CheckpointError      a model's files are damaged, incomplete or lie
    │   ├── ModelMissing         there are none
    │   └── UnsupportedModel     they are sound, but something in them isn't supported
    ├── SourceError          a model's source can't be read as one (bad arguments, exit code 2)
    ├── FetchError           a source couldn't be fetched
    │   └── SourceNotFound, SourceDenied, DigestMismatch, NoProgress, CacheFull, CacheUnwritable
    ├── PortInUse            a port to listen on can't be had
    └── TextError            tokenizer, chat template or text of a request
        ├── TokenizerError       the model's tokenizer is missing, damaged or unknown
        ├── TemplateError        the chat template failed on these messages
        └── InvalidText          text that isn't Unicode (a lone surrogate)

Each class has a stable `reason`, a word of `flatwake_service.manifest.Reason`, which conditions,
`/status`, termination messages and logs share. Our own bugs are assertions and never one of these.
"""

from __future__ import annotations

from typing import ClassVar


class FlatwakeError(Exception):
    """Something that the user or the world got wrong.

    `message` names the thing and the true numbers; `cure` says what to do about it (may be empty).
    `str(error)` is both. `exit_code` is what a command ends with.
    """

    reason: ClassVar[str] = "Unknown"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(f"{message}; {cure}" if cure else message)
        self.message = message
        self.cure = cure


class CheckpointError(FlatwakeError):
    """A model's files are damaged, cut short, or say things that can't be true."""

    reason = "ModelUnreadable"


class ModelMissing(CheckpointError):
    """There is no model where one should be."""

    reason = "ModelMissing"


class UnsupportedModel(CheckpointError):
    """The files are sound, but hold an architecture, format or feature that isn't supported."""

    reason = "ModelUnsupported"


class SourceError(FlatwakeError):
    """A model source that can't be read as one."""

    reason = "SourceInvalid"
    exit_code = 2


class FetchError(FlatwakeError):
    """A source couldn't be fetched; the partial download is kept."""

    reason = "SourceUnreachable"


class SourceNotFound(FetchError):
    """The source has no such repository, revision, package or file."""

    reason = "SourceNotFound"


class SourceDenied(FetchError):
    """The source refuses these credentials, or wants some."""

    reason = "SourceDenied"


class DigestMismatch(FetchError):
    """What was fetched isn't what was asked for."""

    reason = "DigestMismatch"


class NoProgress(FetchError):
    """No byte has arrived for as long as the stall timeout allows."""

    reason = "NoProgress"


class CacheFull(FetchError):
    """The cache's volume has no room left."""

    reason = "CacheFull"


class CacheUnwritable(FetchError):
    """The cache's folder can't be made or written."""

    reason = "CacheUnwritable"


class PortInUse(FlatwakeError):
    """A port to listen on can't be had."""

    reason = "PortInUse"


class TextError(FlatwakeError):
    """Something about turning text into tokens, or back."""

    reason = "ModelUnreadable"


class TokenizerError(TextError):
    """The model's tokenizer is missing, damaged or of an unknown kind."""

    reason = "ModelUnreadable"


class TemplateError(TextError):
    """The chat template couldn't be compiled, or failed on these messages."""

    reason = "ChatTemplateInvalid"


class InvalidText(TextError):
    """A string that isn't Unicode text: it holds a lone surrogate."""
