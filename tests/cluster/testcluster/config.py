"""The components' configuration files, each with the reason for what isn't a default."""

from __future__ import annotations

import json
import os
import resource

from testcluster.layout import (
    ANY_ADDRESS,
    DEFAULT_ROUTE,
    DNS_SERVICE_IP,
    FAMILY,
    NODE,
    NODE_IP,
    NODE_POD_CIDR,
    PAUSE,
    POD_CIDR,
    Cluster,
)
from testcluster.shell import write


def make(cluster: Cluster) -> None:
    """Write every file under the cluster's etc folder."""
    etc = cluster.run / "etc"
    write(etc / "containerd.toml", containerd(cluster))
    write(etc / "cni/10-pods.conflist", json.dumps(pod_network(cluster), indent=1))
    # An empty one, or pods would inherit the machine's name server.
    write(etc / "resolv.conf", "")
    write(etc / "kubelet.json", json.dumps(kubelet(cluster), indent=1))
    write(etc / "proxy.json", json.dumps(kube_proxy(cluster), indent=1))
    write(etc / "Corefile", coredns(cluster))
    write(etc / "boot.json", json.dumps(dns_service(), indent=1))


def containerd(cluster: Cluster) -> str:
    # The socket isn't under /run, which is private to the cluster: ctr must reach it from outside.
    # restrict_oom_score_adj: a machine may lack CAP_SYS_RESOURCE. The kubelet asks for negative
    # oom_score_adj values (pause: -998), which runc then can't set, and no pod starts ("can't get
    # final child's PID from pipe: EOF"). This clamps them.
    # bin_dir: Debian puts the plugins there, not in /opt/cni/bin.
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{cluster.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cluster.run}/etc/cni"
"""


def pod_network(cluster: Cluster) -> dict[str, object]:
    # ptp and not bridge: every pod packet is routed, so Service addresses work between two pods
    # of the node whatever bridge-nf-call-iptables says, and a pod can reach itself through its
    # own Service. No ipMasq: there is no outside to masquerade for.
    addresses = {
        "type": "host-local",
        "dataDir": str(cluster.run / "cni-ipam"),
        "ranges": [[{"subnet": NODE_POD_CIDR}]],
        "routes": [{"dst": DEFAULT_ROUTE}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "mtu": 1500, "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(cluster: Cluster) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ANY_ADDRESS,
        "containerRuntimeEndpoint": f"unix://{cluster.containerd_socket}",
        # From 1.35 on the kubelet refuses cgroup v1 unless told otherwise.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cluster.cgroup}",
        "clusterDNS": [DNS_SERVICE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": str(cluster.run / "etc/resolv.conf"),
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(cluster.pki / "ca.crt")},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(cluster.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(cluster.pki / "kubelet.key"),
        "failSwapOn": False,
        # Raising the limit past the hard one needs CAP_SYS_RESOURCE.
        "maxOpenFiles": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        # A nearly full disk would otherwise taint the node, evict pods and delete images that
        # can't be pulled again.
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        # Tests create and delete many pods at once.
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "nodeStatusUpdateFrequency": "2s",
        "maxPods": 250,
        # The default, here and in the controller manager, is made under /usr/libexec.
        "volumePluginDir": str(cluster.run / "volume-plugins"),
    }


def kube_proxy(cluster: Cluster) -> dict[str, object]:
    # The default waits up to a second between rule changes.
    sync = {"minSyncPeriod": "100ms", "syncPeriod": "30s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": os.environ.get("CLUSTER_PROXY_MODE", "iptables"),
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(cluster.run / "proxy.kubeconfig")},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # The table's size can only be set in the first network namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "oomScoreAdj": 0,
        "iptables": sync,
        "nftables": sync,
    }


def coredns(cluster: Cluster) -> str:
    # Two blocks, as the template plugin always comes before kubernetes in one. Names outside the
    # cluster get a quick NXDOMAIN; with no block for them the answer would be REFUSED, which libc
    # reports as "try again".
    return f"""\
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {NODE_IP}
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {cluster.kubeconfig}
        pods verified
        ttl 1
    }}
}}
.:53 {{
    bind {NODE_IP}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def dns_service() -> dict[str, object]:
    # The name server is a process of the node, not a pod: one image less and a second saved.
    # Pods reach it at the usual Service address all the same.
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns"},
        },
        "spec": {"clusterIP": DNS_SERVICE_IP, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": FAMILY,
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
        "ports": ports,
    }
    return {"apiVersion": "v1", "kind": "List", "items": [service, endpoints]}
