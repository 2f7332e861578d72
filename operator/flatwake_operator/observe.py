"""Everything that a pass looks at, read once before anything is decided."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import httpx
from flatwake_service.manifest import InferenceServer, Reason, ServerStatus, defaults

from flatwake_operator import kinds, labels
from flatwake_operator.api import Api
from flatwake_operator.errors import ApiError
from flatwake_operator.kinds import Kind
from flatwake_operator.pods import Fault, Pod, failed_lately, view
from flatwake_operator.settings import Object
from flatwake_operator.store import Key, Store

STATUS_SECONDS = 2.0
CREATING_PATIENCE = timedelta(seconds=15)
"""Volumes take a moment to mount; after this something is missing."""


@dataclass(frozen=True)
class Abilities:
    """What the cluster serves and what the operator may see.

    apis: kinds of children that exist. nodes, all_pods: whether they may be listed.
    """

    apis: frozenset[Kind]
    nodes: bool
    all_pods: bool


@dataclass(frozen=True)
class World:
    """What surrounds one server.

    children: by (kind, name), ours or not. config: ConfigMap values that the pods read, by
    `name/key`, None where missing. nodes: None without the right to see them.
    """

    server: InferenceServer
    raw: Object
    children: Mapping[tuple[str, str], Object]
    pods: tuple[Pod, ...]
    config: Mapping[str, str | None]
    nodes: tuple[Object, ...] | None
    apis: frozenset[Kind]
    foreign: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def child(self, kind: Kind, name: str) -> Object | None:
        return self.children.get((kind.name, name))

    @property
    def deployment(self) -> Object | None:
        return self.child(kinds.DEPLOYMENT, self.server.name)

    @property
    def revisions(self) -> list[Object]:
        """The server's ControllerRevisions, oldest first."""
        found = [c for (kind, _), c in self.children.items() if kind == kinds.REVISION.name]
        return sorted(found, key=lambda revision: int(revision["revision"]))


class Observer:
    """Reads from the store, and from the API what no watch shows."""

    def __init__(
        self,
        api: Api,
        store: Store,
        abilities: Abilities,
        status_port: int = defaults.SERVE_PORT,
    ) -> None:
        self.api = api
        self.status_port = status_port
        self.store = store
        self.abilities = abilities
        self.reports: dict[str, tuple[int, ServerStatus]] = {}
        """By pod uid: the restarts at which a pod said that it is ready, and what it said."""
        self._http = httpx.AsyncClient(timeout=STATUS_SECONDS, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def world(self, server: InferenceServer, raw: Object) -> World:
        """All that surrounds a server now."""
        key: Key = (server.metadata.namespace or "default", server.name)
        owned: dict[tuple[str, str], Object] = {}
        for kind in kinds.CHILDREN:
            for child in self.store.of(kind, key):
                if labels.is_owned(child, server.metadata.uid):
                    owned[kind.name, child["metadata"]["name"]] = child
        deployment = owned.get((kinds.DEPLOYMENT.name, server.name))
        return World(
            server=server,
            raw=raw,
            children=owned,
            pods=await self._pods(key, deployment),
            config=await self._config(server, key[0]),
            nodes=tuple(self.store.all(kinds.NODE)) if self.abilities.nodes else None,
            apis=self.abilities.apis,
        )

    async def taken(self, wanted: Object, uid: str) -> bool:
        """Whether an object that isn't in the store has the name of a child that is wanted.

        One of ours that the store doesn't know yet is put there.
        """
        meta = wanted["metadata"]
        found = await self.api.get(kinds.kind_of(wanted), meta["namespace"], meta["name"])
        if found is None:
            return False
        if labels.is_owned(found, uid):
            self.store.put(found)
            return False
        return True

    async def all_pods(self) -> list[Object] | None:
        """Every pod that may hold a device; None without the right to see them."""
        if not self.abilities.all_pods:
            return None
        live = "status.phase!=Succeeded,status.phase!=Failed"
        return (await self.api.list(kinds.POD, fields=live)).items

    async def _config(self, server: InferenceServer, namespace: str) -> dict[str, str | None]:
        reference = server.spec.model.chat_template
        if reference is None:
            return {}
        found = await self.api.get(kinds.CONFIG_MAP, namespace, reference.name)
        data = (found or {}).get("data") or {}
        return {f"{reference.name}/{reference.key}": data.get(reference.key)}

    async def _pods(self, key: Key, deployment: Object | None) -> tuple[Pod, ...]:
        template = deployment["spec"]["template"] if deployment else None
        every = self.store.of(kinds.POD, key)
        # A finished pod (evicted, refused by its node) has been replaced by its ReplicaSet.
        raws = [
            pod
            for pod in every
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        views = [view(pod, template, None) for pod in raws]
        reports = await asyncio.gather(*(self._report(pod) for pod in views))
        seen = (view(raw, template, report) for raw, report in zip(raws, reports, strict=True))
        before = failed_lately(every, template, datetime.now(UTC))
        return tuple([await self._explained(pod, key[0], before) for pod in seen])

    async def _explained(self, pod: Pod, namespace: str, before: Fault | None) -> Pod:
        """Asks for the events of a pod whose containers don't come, as only those say why.

        before: why an earlier pod failed, which is its successor's to tell until that is ready.
        """
        if before and pod.current and not pod.ready and pod.fault is None:
            return replace(pod, fault=before)
        since = pod.creating_since
        if since is None or datetime.now(UTC) - since < CREATING_PATIENCE:
            return pod
        chosen = f"involvedObject.uid={pod.uid},type=Warning"
        events = (await self.api.list(kinds.EVENT, namespace, fields=chosen)).items
        if not events:
            return pod
        newest = max(events, key=lambda event: str(event.get("lastTimestamp")))
        text = f"pod {pod.name}: {newest.get('message', '')}"
        return replace(pod, fault=Fault(Reason.CONTAINER_CONFIG, text))

    async def _report(self, pod: Pod) -> ServerStatus | None:
        known = self.reports.get(pod.uid)
        if pod.ready and known is not None and known[0] == pod.restarts:
            return known[1]
        if pod.ip is None or pod.terminating:
            return None
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        try:
            answer = await self._http.get(f"http://{host}:{self.status_port}/status")
            report = ServerStatus.model_validate_json(answer.content)
        except (httpx.HTTPError, ValueError):
            return None  # not listening yet, or not reachable from here
        if pod.ready:
            self.reports[pod.uid] = (pod.restarts, report)
        return report

    def forget(self, gone: set[str]) -> None:
        """Drops what was kept of pods that are gone."""
        for uid in gone & self.reports.keys():
            del self.reports[uid]


async def abilities(api: Api, namespaces: list[str]) -> Abilities:
    """Asks the cluster what it serves and the operator's rights."""
    return Abilities(
        apis=await served(api),
        nodes=await api.may("list", kinds.NODE, None),
        all_pods=not namespaces and await api.may("list", kinds.POD, None),
    )


async def served(api: Api) -> frozenset[Kind]:
    """The kinds of children that the cluster serves."""
    return frozenset(
        [kind for kind in kinds.CHILDREN if not kind.optional or await _usable(api, kind)]
    )


async def _usable(api: Api, kind: Kind) -> bool:
    try:
        return await api.has(kind)
    except ApiError as error:
        if error.status == 403:
            return False
        raise
