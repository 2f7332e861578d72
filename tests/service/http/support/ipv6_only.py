"""A server on a machine whose only address is ::1: this process's own network namespace.

Prints the endpoint that the server says, and what /ready answers there. Exits 77 where this user
may not have a namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8916, 1
REFUSED = 77


def main() -> int:
    flags = _NEWNET if os.geteuid() == 0 else _NEWNET | _NEWUSER
    if ctypes.CDLL(None).unshare(flags) != 0:
        return REFUSED
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interface:
        fcntl.ioctl(interface, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
        none = struct.pack("16sHH4s16x", b"lo", socket.AF_INET, 0, bytes(4))
        fcntl.ioctl(interface, _SIOCSIFADDR, none)

    import httpx
    from process import ServerProcess

    with ServerProcess(host=None) as server:
        server.wait_ready()
        answer = httpx.get(f"{server.url.removesuffix('/v1')}/ready")
        print(server.url, answer.status_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
