# The images of Flatwake.
#
#   service   the server: fetch, preflight, serve. On a CPU by default; with ROCm's base and HIP=ON
#             on AMD GPUs as well:
#               --build-arg BASE=docker.io/rocm/dev-ubuntu-24.04:7.2.4-complete --build-arg HIP=ON
#   operator  the operator and the commands that need no engine (crd, render).
#
# BASE is a Debian or Ubuntu whose Python is 3.11 or newer; the wheel is built on BUILD_BASE, which
# is the same unless given. Behind a proxy with an authority of its own give the build its
# certificates: --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt

ARG BASE=docker.io/library/debian:bookworm-20250520-slim
ARG BUILD_BASE=${BASE}

FROM ${BASE} AS runtime
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      ca-certificates libstdc++6 python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

FROM ${BUILD_BASE} AS tools
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      ca-certificates cmake g++ ninja-build python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/flatwake && mkdir /src
WORKDIR /src
COPY pyproject.toml ./
# Prints what an extra needs, so that the dependencies are a layer that our own code doesn't change.
RUN printf '%s\n' \
      'import sys, tomllib' \
      'project = tomllib.load(open("pyproject.toml", "rb"))["project"]' \
      'for line in project["dependencies"] + project["optional-dependencies"][sys.argv[1]]:' \
      '    print(line)' > requirements.py

FROM tools AS service-build
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 requirements.py service > requirements.txt \
 && /opt/flatwake/bin/pip install -q -r requirements.txt
COPY README.md LICENSE ./
COPY kernels kernels
COPY operator operator
COPY loadtest loadtest
COPY service service
ARG HIP=OFF
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --no-deps --config-settings cmake.define.FLATWAKE_HIP=${HIP} . \
 && /opt/flatwake/bin/pip uninstall -q -y pip setuptools

FROM tools AS operator-build
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 requirements.py operator > requirements.txt \
 && /opt/flatwake/bin/pip install -q -r requirements.txt
COPY README.md LICENSE ./
COPY kernels/flatwake_kernels kernels/flatwake_kernels
COPY loadtest loadtest
COPY service service
COPY operator operator
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --no-deps --config-settings wheel.cmake=false . \
 && /opt/flatwake/bin/pip uninstall -q -y pip setuptools

# The root file system may be read-only: nothing is written but to /tmp and the mounted folders.
FROM runtime AS base
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Flatwake"
ENV PATH=/opt/flatwake/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["flatwake"]

FROM base AS operator
LABEL org.opencontainers.image.title="flatwake-operator" \
      org.opencontainers.image.description="Reconciles InferenceServers"
COPY --from=operator-build /opt/flatwake /opt/flatwake
CMD ["operator"]

FROM base AS service
LABEL org.opencontainers.image.title="flatwake-service" \
      org.opencontainers.image.description="Serves a language model on an AMD GPU or a CPU"
COPY --from=service-build /opt/flatwake /opt/flatwake
EXPOSE 8000
CMD ["--help"]
