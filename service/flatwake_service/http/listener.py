"""The socket that a server listens on, had before anything heavy is imported."""

from __future__ import annotations

import socket

from flatwake_service.errors import PortInUse


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUse, for whatever reason it can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if family == socket.AF_INET6:
            # `::` means both families, as it does everywhere else.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PortInUse(
            f"can't listen on {host} port {port}: {text.lower()}",
            cure="give another port with --port, or end what listens there",
        ) from error
    return listener


def endpoint(listener: socket.socket) -> str:
    """The base URL that a client on this machine uses."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"http://{f'[{host}]' if host.count(':') > 1 and '[' not in host else host}:{port}/v1"
