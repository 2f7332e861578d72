"""A real one-node Kubernetes for tests, without Docker or systemd, and what tests need with it.

The tool (``tests/cluster/cluster``) needs only Python's standard library:

    layout      where everything is, and the addresses inside a cluster
    packages    the Debian packages that it needs
    binaries    Kubernetes, etcd, helm and CoreDNS from the Go module proxy
    archive     OCI archives from folders, and the two smallest images
    images      the project's own images, built on a Debian made here
    pki         certificates and kubeconfigs
    config      the components' configuration files
    components  the components' command lines
    namespace   mounts, network and cgroups of one cluster
    supervisor  the process that starts the components and keeps them running
    lifecycle   up, down, status, exec, load
    cli         the command line

For tests: ``session`` (a cluster that ends with its test run), ``kube`` (kubectl with waits that
explain themselves), ``hub`` (a model hub at the node's address), ``gpus`` (a device plugin).
"""
