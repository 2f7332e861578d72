"""Large and intricate bodies, decoded in a process of their own: `python -m … KIND UNKNOWN`.

A decoder holds the interpreter's lock until it is done, so a thread helps no stream: 4 MiB of tiny
lists take it seconds. What comes back is the request in MessagePack, or one clear error; what
decoding took (memory, too) goes with the process.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from typing import TypeVar

import msgspec

from flatwake_service.http import body as bodies
from flatwake_service.http import schema
from flatwake_service.http.errors import ApiError, Code

T = TypeVar("T", bound=msgspec.Struct)

LONG = 1 << 20
"""Bytes of a body that are read here at a glance, whatever text is in them: 2 ms."""
MANY = 20_000
FEW = 2_000
"""Commas in it, as a measure of how much is to be made of it: 2 ms if it is right, and if it has to
be judged field by field.
"""
MOST = 1 << 18
"""What comes back is made again here: so many token ids, or a sixteenth of that in messages."""
SECONDS, MEMORY = 10, 2 << 30
"""What a process may take: of processor time, of address space."""

_KINDS: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind
    for kind in (
        schema.ChatRequest,
        schema.CompletionRequest,
        schema.TokenizeRequest,
        schema.DetokenizeRequest,
    )
}


class Refusal(msgspec.Struct):
    """What an ApiError is made of."""

    code: Code
    message: str
    param: str | None


async def decode(data: bytes, kind: type[T], unknown: bodies.Unknown, turn: asyncio.Lock) -> T:
    """The request that a body holds; one that takes long waits for its turn. Raises ApiError."""
    commas = data.count(b",") if len(data) <= LONG else None
    if commas is not None and commas <= MANY:
        found = bodies.plain(data, kind)
        if found is not None:
            return found
        if commas <= FEW:
            return bodies.decode(data, kind, unknown)
    async with turn:
        return await _apart(data, kind, unknown)


async def _apart(data: bytes, kind: type[T], unknown: bodies.Unknown) -> T:
    command = (sys.executable, "-m", __name__, kind.__name__, unknown)
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=none)
    try:
        said, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0 and said[:1] == b"+":
        return msgspec.msgpack.decode(said[1:], type=kind)
    if process.returncode == 0 and said[:1] == b"-":
        refused = msgspec.msgpack.decode(said[1:], type=Refusal)
        raise ApiError(refused.code, refused.message, param=refused.param)
    raise ApiError(Code.INVALID_JSON, "the body is too intricate to be read; send a simpler one")


def _weight(value: object) -> int:
    """How much there is to make again: 1 a plain value, 16 an object; no more than is needed."""
    total, rest = 0, [value]
    while rest and total <= MOST:
        each = rest.pop()
        total += 16 if isinstance(each, msgspec.Struct | dict | list) else 1
        if isinstance(each, msgspec.Struct):
            rest += [getattr(each, name) for name in each.__struct_fields__]
        elif isinstance(each, dict | list):
            rest += each.values() if isinstance(each, dict) else each
    return total


def main() -> int:
    """Reads a body, and says what `decode` makes of it."""
    name, unknown = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # A million small objects, none of them garbage: to look for it takes most of the time.
    gc.disable()
    data = sys.stdin.buffer.read()
    try:
        found = bodies.decode(data, _KINDS[name], "ignore" if unknown == "ignore" else "refuse")
        if _weight(found) > MOST:
            message = f"the body holds more than {MOST} token ids, or {MOST // 16} messages"
            raise ApiError(Code.INVALID_VALUE, message)
        said = b"+" + msgspec.msgpack.encode(found)
    except ApiError as error:
        refusal = Refusal(error.code, error.message, error.param)
        said = b"-" + msgspec.msgpack.encode(refusal)
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
