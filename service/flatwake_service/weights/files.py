"""Files mapped into memory, and the bounds that hold for whatever a file claims."""

from __future__ import annotations

import mmap
from pathlib import Path

from flatwake_service.errors import CheckpointError, ModelMissing


class MappedFile:
    """A whole file as read-only bytes. It stays mapped as long as something views it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except FileNotFoundError as error:
            raise ModelMissing(f"there is no {path}", cure="fetch the model") from error
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}") from error
        self.bytes = memoryview(mapped)


def check_extents(path: Path, extents: list[tuple[int, int, str]], start: int, size: int) -> None:
    """Refuse tensors that leave the file or share bytes. Extents are (offset, bytes, name)."""
    end, previous = start, ""
    for offset, nbytes, name in sorted(extents):
        if offset + nbytes > size:
            raise CheckpointError(
                f"{path} is cut short: {name} ends at byte {offset + nbytes}, the file at {size}",
                cure="fetch it again",
            )
        if offset < end and nbytes:
            where = f"the bytes of {previous}" if previous else "the header"
            raise CheckpointError(
                f"{path} is damaged: {name} overlaps {where}", cure="fetch it again"
            )
        if nbytes:
            end, previous = offset + nbytes, name
