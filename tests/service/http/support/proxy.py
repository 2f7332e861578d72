"""A real nginx before a server, set as ingress-nginx sets it from an Ingress's annotations."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

PREFIX = "nginx.ingress.kubernetes.io/"
PATIENCE = 20.0
DIRECTIVES = {
    "proxy-body-size": "client_max_body_size",
    "proxy-buffering": "proxy_buffering",
    "proxy-next-upstream": "proxy_next_upstream",
    "proxy-read-timeout": "proxy_read_timeout",
    "proxy-send-timeout": "proxy_send_timeout",
}
"""What ingress-nginx writes into nginx's configuration for an annotation."""
CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log info;
events {{}}
http {{
  access_log off;
  {scratch}
  upstream server {{ server {upstream}; keepalive 8; }}
  server {{
    listen unix:{folder}/socket ssl;
    ssl_certificate {folder}/proxy.crt;
    ssl_certificate_key {folder}/proxy.key;
    location / {{
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Connection "";
      {settings}
    }}
  }}
}}
"""


def program() -> str:
    """nginx, or a skipped test (a failed one in CI) that says how it is had."""
    found = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is not None:
        return found
    missing = "nginx is missing: apt-get install nginx"
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


def directives(annotations: Mapping[str, str], second: float) -> list[str]:
    """An Ingress's annotations as nginx has them; `second` is how long a second lasts."""
    made = []
    for name, value in annotations.items():
        setting = value
        if name.endswith("-timeout"):
            setting = f"{round(1000 * second * int(value))}ms"
        made.append(f"{DIRECTIVES[name.removeprefix(PREFIX)]} {setting};")
    return made


@contextmanager
def before(url: str, folder: Path, settings: list[str]) -> Iterator[httpx.Client]:
    """A client of the proxy, over TLS; `settings` are nginx's own."""
    nginx = program()
    _make_certificate(folder)
    scratch = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    text = CONFIGURATION.format(
        folder=folder,
        upstream=url.removeprefix("http://"),
        scratch=" ".join(f"{name}_temp_path {folder}/{name};" for name in scratch),
        settings="\n      ".join(settings),
    )
    (folder / "nginx.conf").write_text(text)
    words = [nginx, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        _await(folder / "socket", process)
        transport = httpx.HTTPTransport(uds=str(folder / "socket"), verify=False)
        base = "https://models.example.com"
        with httpx.Client(base_url=base, transport=transport, timeout=PATIENCE) as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def _make_certificate(folder: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=models.example.com"]
    words += ["-keyout", str(folder / "proxy.key"), "-out", str(folder / "proxy.crt")]
    subprocess.run(words, check=True, capture_output=True)


def _await(path: Path, process: subprocess.Popen[bytes]) -> None:
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while time.monotonic() < end and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        pause.wait(0.02)
    process.kill()
    raise AssertionError(f"nginx doesn't start: {process.communicate()[1].decode()}")
