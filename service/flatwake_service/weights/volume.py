"""The volume that the cache lies on: what its errors mean."""

from __future__ import annotations

import errno
from pathlib import Path

from flatwake_service.errors import CacheFull, CacheUnwritable, FetchError


def disk_error(error: OSError, path: Path) -> FetchError:
    """An error of the cache's volume as the typed one."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheFull(
            f"no room is left for {path}", cure="free some, or give the cache a larger volume"
        )
    return CacheUnwritable(f"{path}: {error.strerror or error}")
