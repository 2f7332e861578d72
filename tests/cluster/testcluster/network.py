"""Calls made inside a cluster's network by a thread of this process.

A socket belongs to the network in which it was made, wherever it is used later. So a server may
listen in the cluster and be served by ordinary threads outside, and a client may run outside on
sockets that were made inside.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from testcluster import lifecycle
from testcluster.layout import IPV6, NODE_IP, Cluster

T = TypeVar("T")
CLONE_NEWNET = 0x40000000


def call_inside(cluster: Cluster, function: Callable[[], T]) -> T:
    """What the function returns or raises, run in a thread that is in the cluster's network."""

    def work() -> T:
        enter(cluster)
        return function()

    with ThreadPoolExecutor(1, thread_name_prefix=f"inside {cluster.name}") as pool:
        return pool.submit(work).result()


class NodeServer(ThreadingHTTPServer):
    """Listens at the node's address; to be made inside (`call_inside`)."""

    address_family = socket.AF_INET6 if IPV6 else socket.AF_INET

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((NODE_IP, 0), handler)


def enter(cluster: Cluster) -> None:
    """Move this thread, and it alone, into the network, for the rest of its life."""
    descriptor = os.open(lifecycle.network_of(cluster), os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)
