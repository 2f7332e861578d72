"""Certificates and kubeconfigs of one cluster: P-256, one openssl command each, 0.2 s together."""

from __future__ import annotations

import json
import os
import subprocess

from testcluster.layout import API_SERVICE_IP, NODE, NODE_IP, Cluster
from testcluster.shell import ClusterError, run, write

OPENSSL_CONFIG = """\
[req]
distinguished_name=dn
[dn]
[ca]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
[leaf]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectAltName=${ENV::SAN}
"""
LOCAL = f"DNS:localhost,IP:127.0.0.1,IP:{NODE_IP}"
API_NAMES = (
    f"{LOCAL},DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
    f"DNS:kubernetes.default.svc.cluster.local,IP:{API_SERVICE_IP}"
)
USERS = {
    "controller-manager": "system:kube-controller-manager",
    "scheduler": "system:kube-scheduler",
    "proxy": "system:kube-proxy",
}


def make(cluster: Cluster, api_port: int) -> None:
    """Every certificate, and a kubeconfig for each user of the API at 127.0.0.1:api_port."""
    write(cluster.pki / "ssl.cnf", OPENSSL_CONFIG)
    # The second authority is for aggregated API servers (a metrics adapter, say).
    _wait(
        _certificate(cluster, "ca", "/CN=cluster-ca"),
        _certificate(cluster, "front-ca", "/CN=front-proxy-ca"),
    )
    subject = f"/O=system:nodes/CN=system:node:{NODE}"
    _wait(
        _certificate(cluster, "apiserver", "/CN=kube-apiserver", "ca", API_NAMES),
        _certificate(cluster, "front", "/CN=front-proxy-client", "front-ca"),
        _certificate(cluster, "admin", "/O=system:masters/CN=admin", "ca"),
        _certificate(cluster, "kubelet", subject, "ca", f"{LOCAL},DNS:{NODE}"),
        *(_certificate(cluster, name, f"/CN={user}", "ca") for name, user in USERS.items()),
    )
    run("openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048",
        "-out", cluster.pki / "sa.key")  # fmt: skip
    for name in ("admin", "kubelet", *USERS):
        write(cluster.run / f"{name}.kubeconfig", _kubeconfig(cluster, name, api_port), 0o600)


def _certificate(
    cluster: Cluster,
    name: str,
    subject: str,
    authority: str | None = None,
    names: str = "DNS:unused.invalid",
) -> subprocess.Popen[bytes]:
    folder = cluster.pki
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-config", str(folder / "ssl.cnf"), "-days", "3650", "-subj", subject,
               "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"),
               "-extensions", "leaf" if authority else "ca"]  # fmt: skip
    if authority:
        command += ["-CA", str(folder / f"{authority}.crt")]
        command += ["-CAkey", str(folder / f"{authority}.key")]
    return subprocess.Popen(command, env=dict(os.environ, SAN=names), stderr=subprocess.DEVNULL)


def _wait(*processes: subprocess.Popen[bytes]) -> None:
    codes = [process.wait() for process in processes]
    if any(codes):
        raise ClusterError("openssl could not make the certificates: it must be version 3")


def _kubeconfig(cluster: Cluster, user: str, api_port: int) -> str:
    folder = cluster.pki
    server = {
        "server": f"https://127.0.0.1:{api_port}",
        "certificate-authority": str(folder / "ca.crt"),
    }
    credentials = {
        "client-certificate": str(folder / f"{user}.crt"),
        "client-key": str(folder / f"{user}.key"),
    }
    context = {"cluster": cluster.name, "user": user}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster.name,
            "clusters": [{"name": cluster.name, "cluster": server}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": cluster.name, "context": context}],
        },
        indent=1,
    )
