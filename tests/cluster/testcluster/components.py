"""The components' command lines, each with the reason for what isn't a default."""

from __future__ import annotations

import csv
import json
import secrets
import socket
from dataclasses import asdict, dataclass

from testcluster import binaries
from testcluster.layout import ANY_ADDRESS, NODE, NODE_IP, SERVICE_CIDR, Cluster
from testcluster.shell import write


@dataclass(frozen=True)
class Ports:
    """Where etcd and the API server listen; services: the ranges of Services' addresses."""

    api: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    services: str = SERVICE_CIDR

    @classmethod
    def free(cls, services: str = SERVICE_CIDR) -> Ports:
        """Three ports of the loopback that nobody has now."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = cls(*(each.getsockname()[1] for each in sockets), services=services)
        for each in sockets:
            each.close()
        return ports

    @classmethod
    def of(cls, cluster: Cluster) -> Ports:
        """Those that `remember` wrote, or the ones of a cluster with its own network."""
        if not cluster.api_only:
            return cls()
        return cls(**json.loads((cluster.run / "ports.json").read_text()))

    def remember(self, cluster: Cluster) -> None:
        write(cluster.run / "ports.json", json.dumps(asdict(self)))


USERS = ("admin,admin,system:masters", "plain,plain")
"""Who may use an API server without a node by a token: name, id, group. `plain` has no rights."""


def make_tokens(cluster: Cluster) -> None:
    rows = "".join(f"{secrets.token_hex(16)},{user}\n" for user in USERS)
    write(cluster.run / "tokens.csv", rows, 0o600)


def tokens(cluster: Cluster) -> dict[str, str]:
    """Those of an API server without a node, by user."""
    with (cluster.run / "tokens.csv").open() as rows:
        return {name: token for token, name, *_ in csv.reader(rows)}


def etcd(cluster: Cluster) -> list[str]:
    ports = Ports.of(cluster)
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        str(binaries.require("etcd")),
        f"--data-dir={cluster.run}/etcd",
        "--log-level=warn",
        # A test cluster need not survive a power cut; fsync is most of the start-up time on a
        # slow disk.
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def kube_apiserver(cluster: Cluster) -> list[str]:
    ports, pki = Ports.of(cluster), cluster.pki
    if cluster.api_only:
        # Nothing routes to the loopback, so there are no endpoints to publish.
        # It has to be of the family of the Services' first range.
        address = "::1" if ":" in ports.services.split(",")[0] else "127.0.0.1"
        listen = ["--bind-address=127.0.0.1", f"--advertise-address={address}",
                  "--endpoint-reconciler-type=none",
                  f"--token-auth-file={cluster.run}/tokens.csv",
                  # Nobody makes the accounts that pods would be refused without.
                  "--disable-admission-plugins=ServiceAccount"]  # fmt: skip
    else:
        listen = [f"--bind-address={ANY_ADDRESS}", f"--advertise-address={NODE_IP}"]
    return [
        str(binaries.require("kube-apiserver")),
        *listen,
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        f"--secure-port={ports.api}",
        f"--service-cluster-ip-range={ports.services}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/admin.crt",
        f"--kubelet-client-key={pki}/admin.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        # The node's name is in no DNS.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/front-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki}/front.crt",
        f"--proxy-client-key-file={pki}/front.key",
        # Aggregated API servers are called at their endpoints, not through the Service address.
        "--enable-aggregator-routing=true",
        "--profiling=false",
    ]


def kube_controller_manager(cluster: Cluster) -> list[str]:
    pki, config = cluster.pki, cluster.run / "controller-manager.kubeconfig"
    return [
        str(binaries.require("kube-controller-manager")),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        # One copy: an election would only add seconds.
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--profiling=false",
        # With the default of 20 requests a second the controllers, each of which asks for a token
        # first, take three seconds longer to start.
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        f"--flex-volume-plugin-dir={cluster.run}/volume-plugins",
        # An HPA is looked at every 2 s and not every 15 s.
        "--horizontal-pod-autoscaler-sync-period=2s",
        # Without a network of its own a cluster takes no fixed port of the machine.
        *(["--secure-port=0"] if cluster.api_only else []),
    ]


def kube_scheduler(cluster: Cluster) -> list[str]:
    config = cluster.run / "scheduler.kubeconfig"
    return [
        str(binaries.require("kube-scheduler")),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--profiling=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def kubelet(cluster: Cluster) -> list[str]:
    return [
        str(binaries.require("kubelet")),
        f"--config={cluster.run}/etc/kubelet.json",
        f"--kubeconfig={cluster.run}/kubelet.kubeconfig",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_IP}",
    ]


def commands(cluster: Cluster) -> dict[str, list[str]]:
    """Every component of a whole cluster, by name."""
    etc = cluster.run / "etc"
    return {
        "containerd": ["containerd", "--config", f"{etc}/containerd.toml"],
        "etcd": etcd(cluster),
        "kube-apiserver": kube_apiserver(cluster),
        "kube-controller-manager": kube_controller_manager(cluster),
        "kube-scheduler": kube_scheduler(cluster),
        "kubelet": kubelet(cluster),
        "kube-proxy": [str(binaries.require("kube-proxy")), f"--config={etc}/proxy.json"],
        "coredns": [str(binaries.require("coredns")), "-conf", f"{etc}/Corefile"],
    }


def api_commands(cluster: Cluster) -> dict[str, list[str]]:
    """Those that an API without a node has; the controller manager is started if asked for."""
    return {
        "etcd": etcd(cluster),
        "kube-apiserver": kube_apiserver(cluster),
        "kube-controller-manager": kube_controller_manager(cluster),
    }
