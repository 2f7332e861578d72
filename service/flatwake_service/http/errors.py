"""Every error that the API answers with: a closed list of codes, each with its page in docs.

    ApiError         one answer: a code's status and type, with a message, a field, headers

A code's meaning never changes; clients may branch on it. The message names the thing, the true
numbers and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class ErrorType(StrEnum):
    """OpenAI's `type`: the kind of error."""

    INVALID_REQUEST = "invalid_request_error"
    AUTHENTICATION = "authentication_error"
    RATE_LIMIT = "rate_limit_error"
    UNAVAILABLE = "service_unavailable_error"
    SERVER = "server_error"


class Code(StrEnum):
    """OpenAI's `code`: what exactly is wrong. docs/errors.md has a section for each."""

    INVALID_HTTP = "invalid_http"
    INVALID_JSON = "invalid_json"
    INVALID_TEXT = "invalid_text"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    INVALID_TYPE = "invalid_type"
    INVALID_VALUE = "invalid_value"
    UNSUPPORTED_VALUE = "unsupported_value"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    CHAT_TEMPLATE_FAILED = "chat_template_failed"
    INVALID_API_KEY = "invalid_api_key"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    REQUEST_TIMEOUT = "request_timeout"
    MODEL_LOADING = "model_loading"
    DRAINING = "draining"
    DRAIN_TIMEOUT = "drain_timeout"
    ENGINE_FAILED = "engine_failed"
    SEQUENCE_FAILED = "sequence_failed"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True)
class _Kind:
    status: int
    type: ErrorType


_BAD = _Kind(400, ErrorType.INVALID_REQUEST)
_UNAVAILABLE = _Kind(503, ErrorType.UNAVAILABLE)

KINDS: dict[Code, _Kind] = {
    Code.INVALID_HTTP: _BAD,
    Code.INVALID_JSON: _BAD,
    Code.INVALID_TEXT: _BAD,
    Code.UNKNOWN_FIELD: _BAD,
    Code.MISSING_FIELD: _BAD,
    Code.INVALID_TYPE: _BAD,
    Code.INVALID_VALUE: _BAD,
    Code.UNSUPPORTED_VALUE: _BAD,
    Code.CONTEXT_LENGTH_EXCEEDED: _BAD,
    Code.CHAT_TEMPLATE_FAILED: _BAD,
    Code.INVALID_API_KEY: _Kind(401, ErrorType.AUTHENTICATION),
    Code.MODEL_NOT_FOUND: _Kind(404, ErrorType.INVALID_REQUEST),
    Code.NOT_FOUND: _Kind(404, ErrorType.INVALID_REQUEST),
    Code.METHOD_NOT_ALLOWED: _Kind(405, ErrorType.INVALID_REQUEST),
    Code.BODY_TOO_LARGE: _Kind(413, ErrorType.INVALID_REQUEST),
    Code.QUEUE_FULL: _Kind(429, ErrorType.RATE_LIMIT),
    Code.QUEUE_TIMEOUT: _UNAVAILABLE,
    Code.REQUEST_TIMEOUT: _Kind(504, ErrorType.SERVER),
    Code.MODEL_LOADING: _UNAVAILABLE,
    Code.DRAINING: _UNAVAILABLE,
    Code.DRAIN_TIMEOUT: _UNAVAILABLE,
    Code.ENGINE_FAILED: _UNAVAILABLE,
    Code.SEQUENCE_FAILED: _Kind(500, ErrorType.SERVER),
    Code.INTERNAL_ERROR: _Kind(500, ErrorType.SERVER),
}


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong. `param` is the field it is about, as a path; null when it is about none."""

    message: str
    type: ErrorType
    param: str | None
    code: Code


class ErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error object: the body of every answer that isn't a success."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer that isn't a success. `retry_after`: whole seconds, as a header.

    `retry` says whether the same request can succeed later (`x-should-retry`, which OpenAI's
    clients obey); None leaves it to the status.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.retry = retry

    @property
    def status(self) -> int:
        return KINDS[self.code].status

    def body(self) -> ErrorBody:
        return ErrorBody(ErrorDetail(self.message, KINDS[self.code].type, self.param, self.code))

    def encode(self) -> bytes:
        """The JSON document."""
        return msgspec.json.encode(self.body())

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = []
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.retry is not None:
            headers.append((b"x-should-retry", b"true" if self.retry else b"false"))
        if self.code is Code.INVALID_API_KEY:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers
