"""The pod: an init container that fetches the model, and the container that serves it."""

from collections.abc import Iterator

from flatwake_service.manifest import (
    Backend,
    Place,
    Scheme,
    defaults,
    fetch_arguments,
    parse_source,
    seconds,
    serve_arguments,
)

from flatwake_operator import labels
from flatwake_operator.children import account, architectures, claim, device
from flatwake_operator.settings import Context, Object

USER = 65532
"""The images' user; no file of the image belongs to it."""
CACHE, TMP, RUN, SHM = "/cache", "/tmp", "/run/flatwake", "/dev/shm"  # noqa: S108 (mounts)
KEYS, TOKEN, TEMPLATE, PINNED = (
    "/etc/flatwake/keys",
    "/etc/flatwake/token",
    "/etc/flatwake/template",
    "/etc/flatwake/model",
)
STARTUP_PERIOD, STARTUP_LIMIT = 2, 24 * 3600
"""serve ends by itself when a load stands still; the kubelet must never be the one to end it."""


def template(context: Context) -> Object:
    """The Deployment's pod template."""
    spec = context.server.spec
    made: Object = {"labels": {**spec.template.labels, **labels.labels(context.name)}}
    if spec.template.annotations:
        made["annotations"] = dict(spec.template.annotations)
    return {"metadata": made, "spec": _pod(context)}


def grace_seconds(context: Context) -> int:
    """How long the kubelet waits after SIGTERM: announcing, draining, leaving."""
    limits = context.server.spec.limits
    drain = seconds(limits.drain_timeout or limits.request_timeout)
    return defaults.PROPAGATION_SECONDS + int(-(-drain // 1)) + defaults.GRACE_MARGIN_SECONDS


def _pod(context: Context) -> Object:
    fragment = context.server.spec.template
    pod: Object = {
        "serviceAccountName": account.account_name(context),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The kernel drops a SIGTERM to process 1 until it has a handler, so a pod that is deleted
        # while Python starts would stay for its whole grace period. Here pause is process 1.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": grace_seconds(context),
        "securityContext": _pod_security(context),
        "initContainers": [_fetch(context)],
        "containers": [_serve(context)],
        "volumes": [*_volumes(context), *(volume.model_dump() for volume in fragment.volumes)],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels.selector(context.name)},
            }
        ],
    }
    claim_spec = device.claim_spec(context)
    if claim_spec is not None:
        name = device.claim_template_name(context.name, claim_spec)
        pod["resourceClaims"] = [{"name": device.REQUEST, "resourceClaimTemplateName": name}]
    return pod | _scheduling(context)


def _scheduling(context: Context) -> Object:
    spec = context.server.spec
    fragment = spec.template
    affinity: Object = fragment.affinity.model_dump() if fragment.affinity else {}
    wanted = spec.accelerator.architectures
    by_labels = context.decision.labelled and spec.accelerator.claim is None
    if context.decision.backend is Backend.HIP and wanted and by_labels:
        affinity = architectures.with_terms(affinity, architectures.node_terms(wanted))
    pieces: Object = {
        "affinity": affinity,
        "nodeSelector": dict(fragment.node_selector),
        "tolerations": [toleration.model_dump() for toleration in fragment.tolerations],
        "priorityClassName": fragment.priority_class_name,
        "runtimeClassName": fragment.runtime_class_name,
        "imagePullSecrets": [{"name": secret.name} for secret in spec.image_pull_secrets],
    }
    return {key: value for key, value in pieces.items() if value}


def _pod_security(context: Context) -> Object:
    security: Object = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if context.decision.backend is Backend.HIP:
        groups = context.server.spec.accelerator.render_groups or context.settings.render_groups
        security["supplementalGroups"] = list(groups)
    return security


def _container(context: Context, name: str, arguments: list[str], mounts: list[Object]) -> Object:
    fragment = context.server.spec.template
    return {
        "name": name,
        "image": context.decision.image,
        "args": arguments,
        "env": _env(context),
        "resources": _resources(context),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, *(mount.model_dump() for mount in fragment.volume_mounts)],
    }


def _env(context: Context) -> list[Object]:
    given = [variable.model_dump() for variable in context.server.spec.template.env]
    # The root file system is read-only, and libraries like to write below HOME.
    home = [] if any(v["name"] == "HOME" for v in given) else [{"name": "HOME", "value": TMP}]
    return home + given


def _fetch(context: Context) -> Object:
    model = context.server.spec.model
    mounts = [_mount("cache", CACHE, _cache_is_given(context)), _mount("tmp", TMP)]
    mounts += [_mount("shm", SHM), _mount("model", PINNED, read_only=True)]
    token = None
    if model.token_secret:
        token = f"{TOKEN}/{model.token_secret.key}"
        mounts.append(_mount("token", TOKEN, read_only=True))
    arguments = fetch_arguments(
        context.server,
        cache=CACHE,
        backend=context.decision.backend,
        token_file=token,
        pinned_dir=PINNED,
    )
    # It answers /status on the server's port; to declare that twice would only raise a warning.
    return _container(context, "fetch", ["fetch", *arguments], mounts)


def _serve(context: Context) -> Object:
    spec = context.server.spec
    mounts = [_mount("cache", CACHE, read_only=True), _mount("tmp", TMP)]
    mounts += [_mount("run", RUN), _mount("shm", SHM)]
    if spec.access.api_keys_secret:
        mounts.append(_mount("keys", KEYS, read_only=True))
    template_file = None
    if spec.model.chat_template:
        template_file = f"{TEMPLATE}/{spec.model.chat_template.key}"
        mounts.append(_mount("template", TEMPLATE, read_only=True))
    place = Place(
        model=parse_source(spec.model.source).location(CACHE),
        port=defaults.SERVE_PORT,
        backend=context.decision.backend,
        api_keys_dir=KEYS if spec.access.api_keys_secret else None,
        chat_template=template_file,
    )
    container = _container(
        context, "serve", ["serve", *serve_arguments(context.server, place)], mounts
    )
    return container | {
        "ports": [{"name": "http", "containerPort": defaults.SERVE_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/health", STARTUP_PERIOD, STARTUP_LIMIT // STARTUP_PERIOD),
        "readinessProbe": _probe("/ready", 2, 2),
        "livenessProbe": _probe("/health", 10, 6),
    }


def _probe(path: str, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _resources(context: Context) -> Object:
    spec = context.server.spec
    given: Object = spec.template.resources.model_dump() if spec.template.resources else {}
    resources: Object = {key: dict(given[key]) for key in ("requests", "limits") if key in given}
    if claim.claim_name(context) is None:
        # Without a claim the model lies on the node's disk, which the scheduler should know.
        resources.setdefault("requests", {}).setdefault("ephemeral-storage", spec.model.cache.size)
    claims: list[Object] = list(given.get("claims") or [])
    if context.decision.backend is Backend.HIP:
        if spec.accelerator.claim:
            claims.append({"name": device.REQUEST})
        else:
            resources.setdefault("limits", {})[spec.accelerator.resource] = 1
    return resources | ({"claims": claims} if claims else {})


def _mount(name: str, path: str, read_only: bool = False) -> Object:
    mount: Object = {"name": f"flatwake-{name}", "mountPath": path}
    return mount | ({"readOnly": True} if read_only else {})


def _cache_is_given(context: Context) -> bool:
    return parse_source(context.server.spec.model.source).scheme is Scheme.PVC


def _volumes(context: Context) -> Iterator[Object]:
    spec = context.server.spec
    claimed = claim.claim_name(context)
    cache: Object = {"name": "flatwake-cache"}
    if claimed is None:
        yield cache | {"emptyDir": {"sizeLimit": spec.model.cache.size}}
    else:
        read_only = {"readOnly": True} if _cache_is_given(context) else {}
        yield cache | {"persistentVolumeClaim": {"claimName": claimed, **read_only}}
    yield {"name": "flatwake-tmp", "emptyDir": {"sizeLimit": "1Gi"}}
    yield {"name": "flatwake-run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    yield {"name": "flatwake-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    # Written by the operator once the first pod has resolved its source, so optional.
    model = {"name": context.part("model"), "optional": True}
    yield {"name": "flatwake-model", "configMap": model}
    if spec.access.api_keys_secret:
        yield _secret("keys", spec.access.api_keys_secret.name)
    if spec.model.token_secret:
        yield _secret("token", spec.model.token_secret.name)
    if spec.model.chat_template:
        yield {"name": "flatwake-template", "configMap": {"name": spec.model.chat_template.name}}


def _secret(name: str, secret: str) -> Object:
    # Optional and without subPath: a Secret that comes later or is rotated takes effect by itself.
    return {
        "name": f"flatwake-{name}",
        "secret": {"secretName": secret, "optional": True, "defaultMode": 0o440},
    }
