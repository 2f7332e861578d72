"""The socket that a server listens on, had before anything heavy is imported."""

from __future__ import annotations

import errno
import socket

from flatwake_service.errors import PortInUse

_NO_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def bind(host: str | None, port: int, option: str = "--port") -> socket.socket:
    """A listening socket. None: all of this machine's addresses, IPv4 and IPv6, or whichever of
    the two it has. Raises PortInUse, for whatever reason it can't be had; `option` gives another.
    """
    if host is None:
        try:
            return _listen("::", port)
        except OSError as error:
            if error.errno not in _NO_FAMILY:
                raise _refused("all addresses", port, error, option) from error
        host = "0.0.0.0"  # noqa: S104 - without IPv6 this is all of them
    try:
        return _listen(host, port)
    except (OSError, OverflowError) as error:
        raise _refused(host, port, error, option) from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` means both families, as it does everywhere else, whatever the machine's default.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def _refused(where: str, port: int, error: OSError | OverflowError, option: str) -> PortInUse:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return PortInUse(
        f"can't listen on {where} port {port}: {text.lower()}",
        cure=f"give another port with {option}, or end what listens there",
    )


def endpoint(listener: socket.socket) -> str:
    """The base URL that a client on this machine uses."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what is compared is listened on already
        host = "127.0.0.1" if host == "0.0.0.0" or _has_ipv4() else "::1"  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _has_ipv4() -> bool:
    """Whether a client here can use 127.0.0.1: a machine may have nothing but IPv6."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError:
        return False
    return True
