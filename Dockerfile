# The images of Flatwake.
#
#   service   the server: fetch, preflight, serve. On a CPU by default; with ROCm's base and HIP=on
#             on AMD GPUs as well:
#               --build-arg BASE=docker.io/rocm/dev-ubuntu-24.04:7.2.4-complete --build-arg HIP=on
#   operator  the operator and the commands that need no engine (crd, render).
#   load      the load suite, for running it inside a cluster.
#
# BASE is a Debian or Ubuntu whose Python is 3.11 or newer; everything is built on BUILD_BASE, which
# is the same unless given. Behind a proxy with an authority of its own give the build its
# certificates: --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt

ARG BASE=docker.io/library/debian:bookworm-20250520-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS tools
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      ca-certificates cmake g++ ninja-build python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/flatwake && mkdir /src
WORKDIR /src

# The CPU's library: a layer that only its own sources change (CMake finds empty folders in place of
# the others), and a build that fails when they do.
FROM tools AS cpu-library
ARG JOBS=2
COPY kernels/CMakeLists.txt kernels/
COPY kernels/include kernels/include
COPY kernels/cpu kernels/cpu
RUN mkdir /libraries \
 && for part in $(sed -n 's/^add_subdirectory(\(.*\))/\1/p' kernels/CMakeLists.txt); do \
      [ -d kernels/$part ] || { mkdir kernels/$part && touch kernels/$part/CMakeLists.txt; }; \
    done \
 && cmake -S kernels -B build -G Ninja \
 && cmake --build build --parallel ${JOBS} --target flatwake_cpu \
 && cp build/cpu/libflatwake_cpu.so /libraries/

# With HIP=on the AMD library too, for every architecture that the compiler knows: ROCm's own clang
# where the base has it, else Debian's.
FROM cpu-library AS libraries
ARG HIP=off
RUN [ "${HIP}" != on ] || [ -x /opt/rocm/llvm/bin/clang++ ] \
 || { apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      clang-19 lld-19 llvm-19 \
 && rm -rf /var/lib/apt/lists/*; }
COPY kernels/tools kernels/tools
COPY kernels/hip kernels/hip
RUN [ "${HIP}" != on ] \
 || { if [ -x /opt/rocm/llvm/bin/clang++ ]; then \
        export FLATWAKE_CLANG=/opt/rocm/llvm/bin/clang++; \
      fi; \
      cmake -S kernels -B build -DFLATWAKE_HIP=on \
 && cmake --build build --parallel ${JOBS} --target flatwake_hip \
 && cp build/hip/libflatwake_hip.so /libraries/; }

# What is installed from PyPI, by version and hash: layers that our own code doesn't change.
FROM tools AS service-dependencies
COPY .ci/lock/images/service.txt ./
# pypi:// sources ask the index that pip has built in, and pip itself doesn't stay.
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --require-hashes -r service.txt \
 && /opt/flatwake/bin/python3 -c 'from pip._internal.models.index import PyPI; print("[global]", f"index-url = {PyPI.simple_url}", sep="\n")' \
      > /opt/flatwake/pip.conf \
 && /opt/flatwake/bin/pip uninstall -q -y pip setuptools

FROM tools AS operator-dependencies
COPY .ci/lock/images/operator.txt ./
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --require-hashes -r operator.txt \
 && /opt/flatwake/bin/pip uninstall -q -y pip setuptools

FROM tools AS load-dependencies
COPY .ci/lock/images/loadtest.txt ./
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --require-hashes -r loadtest.txt \
 && /opt/flatwake/bin/pip uninstall -q -y pip setuptools

# Our own packages, in a tree that is laid over the dependencies'.
FROM tools AS packages
COPY pyproject.toml README.md LICENSE ./
COPY kernels/flatwake_kernels kernels/flatwake_kernels
COPY loadtest loadtest
COPY service service
COPY operator operator
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    /opt/flatwake/bin/pip install -q --no-deps --config-settings wheel.cmake=false \
      --prefix /packages .

# The root file system may be read-only: nothing is written but to /tmp and the mounted folders.
FROM ${BASE} AS runtime
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      ca-certificates libstdc++6 python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
ARG VERSION=0.1.0
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Flatwake"
ENV PATH=/opt/flatwake/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["flatwake"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="flatwake-operator" \
      org.opencontainers.image.description="Reconciles InferenceServers"
# glibc raises this by itself as soon as a large list is freed. The next lists then lie on the heap
# among small objects that stay, and every minute leaves holes behind.
ENV MALLOC_MMAP_THRESHOLD_=131072
COPY --from=operator-dependencies /opt/flatwake /opt/flatwake
COPY --from=packages /packages /opt/flatwake
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
CMD ["operator"]

FROM runtime AS load
LABEL org.opencontainers.image.title="flatwake-load" \
      org.opencontainers.image.description="Puts a model server under load and judges it"
COPY --from=load-dependencies /opt/flatwake /opt/flatwake
COPY --from=packages /packages /opt/flatwake
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
CMD ["load", "--help"]

FROM runtime AS service
LABEL org.opencontainers.image.title="flatwake-service" \
      org.opencontainers.image.description="Serves a language model on an AMD GPU or a CPU"
ENV FLATWAKE_LIBRARY_DIR=/opt/flatwake/lib/flatwake
COPY --from=service-dependencies /opt/flatwake /opt/flatwake
COPY --from=libraries /libraries /opt/flatwake/lib/flatwake
COPY --from=packages /packages /opt/flatwake
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"
EXPOSE 8000
CMD ["--help"]
