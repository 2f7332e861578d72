"""A client for the few calls that the operator makes, over the credentials that kopf finds.

Server-side apply, lists in pages, one error type. Every call is counted by verb and kind; every
write first asks a guard, which raises when the Lease may be lost.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import kopf

from flatwake_operator.errors import ApiError, UnreachableError
from flatwake_operator.kinds import Kind, kind_of
from flatwake_operator.settings import Object

MANAGER: Final = "flatwake"
SCALE_MANAGER: Final = "flatwake-scale"
STATUS_MANAGER: Final = "flatwake-status"
TIMEOUT_SECONDS: Final = 30.0
PAGE: Final = 500
TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
TOKEN_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Listing:
    """A whole list and the version of the world that it shows."""

    items: list[Object]
    version: str


@dataclass
class Calls:
    """How many calls were made, by (verb, plural); `write` tells writes from reads."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    seconds: float = 0.0
    last_answer: float = field(default_factory=time.monotonic)
    """When the API server last answered anything at all (monotonic)."""

    @contextmanager
    def call(self, verb: str, plural: str) -> Iterator[None]:
        started = time.monotonic()
        self.counts[verb, plural] = self.counts.get((verb, plural), 0) + 1
        yield
        self.last_answer = time.monotonic()
        self.seconds += self.last_answer - started


def connection() -> kopf.ConnectionInfo:
    """The pod's own service account, else the kubeconfig of a person."""
    settings = kopf.OperatorSettings()
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(
        settings=settings
    )
    if found is None:
        raise SystemExit("no cluster: run in a pod with a service account, or set KUBECONFIG")
    return found


class Api:
    """Calls to the API server; safe to use from several tasks at once."""

    def __init__(self, to: kopf.ConnectionInfo, guard: Callable[[], None] = lambda: None) -> None:
        self.calls = Calls()
        self.guard = guard
        self._headers = to.as_http_headers()
        self._token_read = time.monotonic()
        self._in_pod = to.server == "https://kubernetes.default.svc"
        self._client = httpx.AsyncClient(
            base_url=to.server,
            verify=to.as_ssl_context(),
            timeout=TIMEOUT_SECONDS,
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object, or None where there is none."""
        try:
            return await self._call("get", kind, "GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> Listing:
        """All objects, of all namespaces if none is given; raises ApiError 404 without the API."""
        items: list[Object] = []
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields}
        query = {key: value for key, value in query.items() if value}
        while True:
            page = await self._call("list", kind, "GET", kind.path(namespace), query=query)
            # Lists leave out what is the same for all.
            same = {"apiVersion": kind.version, "kind": kind.name}
            items.extend({**same, **item} for item in page["items"])
            following = page["metadata"].get("continue")
            if not following:
                return Listing(items, page["metadata"]["resourceVersion"])
            query["continue"] = following

    async def apply(
        self,
        thing: Object,
        manager: str = MANAGER,
        *,
        part: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply, by force: what a manager declares is its own."""
        kind, meta = kind_of(thing), thing["metadata"]
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return await self._call(
            "patch",
            kind,
            "PATCH",
            kind.path(meta["namespace"], meta["name"], part),
            body=thing,
            query=query,
            content="application/apply-patch+yaml",
        )

    async def create(self, thing: Object) -> Object:
        kind = kind_of(thing)
        path = kind.path(thing["metadata"]["namespace"])
        return await self._call("create", kind, "POST", path, body=thing)

    async def replace(self, thing: Object) -> Object:
        """Writes the whole object if it is still as it was read (resourceVersion)."""
        kind, meta = kind_of(thing), thing["metadata"]
        path = kind.path(meta["namespace"], meta["name"])
        return await self._call("update", kind, "PUT", path, body=thing)

    async def delete(self, thing: Object) -> None:
        """Deletes this very object (by uid); one that is gone already is no error."""
        kind, meta = kind_of(thing), thing["metadata"]
        body = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        path = kind.path(meta["namespace"], meta["name"])
        try:
            await self._call("delete", kind, "DELETE", path, body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def has(self, kind: Kind) -> bool:
        """Whether the cluster serves a kind."""
        try:
            found = await self._call("get", kind, "GET", kind.root)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in found["resources"])

    async def may(self, verb: str, kind: Kind, namespace: str | None) -> bool:
        """Whether the operator itself has a right."""
        attributes = {"verb": verb, "group": kind.group, "resource": kind.plural}
        if namespace:
            attributes["namespace"] = namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        access = Kind("SelfSubjectAccessReview", "authorization.k8s.io/v1",
                      "selfsubjectaccessreviews", namespaced=False)  # fmt: skip
        answer = await self._call("create", access, "POST", access.path(None), body=review)
        return bool(answer["status"]["allowed"])

    async def _call(
        self,
        verb: str,
        kind: Kind,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: dict[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        if method != "GET" and not (query or {}).get("dryRun"):
            self.guard()
        try:
            with self.calls.call(verb, kind.plural):
                answer = await self._client.request(
                    method,
                    path,
                    params=query,
                    content=None if body is None else json.dumps(body).encode(),
                    headers={**self._authorization(), "Content-Type": content},
                )
        except (TimeoutError, httpx.HTTPError) as error:
            raise UnreachableError(f"{method} {path}: {error or type(error).__name__}") from error
        parsed = _parsed(answer)
        if answer.status_code >= 400:
            after = answer.headers.get("Retry-After", "")
            raise ApiError(
                answer.status_code,
                parsed,
                f"{method} {path}",
                float(after) if after.isdigit() else None,
            )
        return parsed

    def _authorization(self) -> dict[str, str]:
        # The kubelet renews a pod's token in its file.
        if self._in_pod and time.monotonic() - self._token_read > TOKEN_SECONDS:
            self._headers = {"Authorization": f"Bearer {TOKEN.read_text().strip()}"}
            self._token_read = time.monotonic()
        return self._headers


def _parsed(answer: httpx.Response) -> Object:
    try:
        body = answer.json()
    except ValueError:
        body = {"message": answer.text[:500]}
    return body if isinstance(body, dict) else {"message": str(body)}
