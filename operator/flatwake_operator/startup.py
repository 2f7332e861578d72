"""What is checked before the first pass: that the installed CRD has every field of this version."""

from typing import Any

from flatwake_operator import crd
from flatwake_operator.api import Api
from flatwake_operator.errors import ApiError
from flatwake_operator.kinds import Kind
from flatwake_operator.settings import Object

CRD = Kind(
    "CustomResourceDefinition",
    "apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    namespaced=False,
)


class CrdError(Exception):
    """The CRD in the cluster isn't fit for this operator; the message says what to do."""


async def check_crd(api: Api) -> None:
    """Raises CrdError where fields that this version needs would be pruned in silence."""
    try:
        found = await api.get(CRD, None, crd.NAME)
    except ApiError as error:
        if error.status == 403:
            return  # without the right to look, the API server's answers have to do
        raise
    if found is None:
        raise CrdError(
            f"the CRD {crd.NAME} isn't installed: install the chart with crds.install=true, or "
            "run `flatwake crd | kubectl apply --server-side -f -`"
        )
    missing = missing_fields(crd.schema(), _installed(found))
    if missing:
        raise CrdError(
            f"the installed CRD lacks {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}, which this version "
            "needs: upgrade it with the chart (crds.install=true), or run "
            "`flatwake crd | kubectl apply --server-side --force-conflicts -f -`"
        )


def _installed(found: Object) -> Object:
    for version in found["spec"]["versions"]:
        if version["name"] == crd.VERSION:
            schema: Object = version["schema"]["openAPIV3Schema"]
            return schema
    raise CrdError(f"the installed CRD {crd.NAME} doesn't serve {crd.VERSION}: upgrade it")


def missing_fields(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Paths of fields that one schema has and another hasn't."""
    if not isinstance(found, dict):
        return [path.lstrip(".")]
    faults = []
    for name, inner in wanted.get("properties", {}).items():
        faults += missing_fields(inner, found.get("properties", {}).get(name), f"{path}.{name}")
    if "items" in wanted:
        faults += missing_fields(wanted["items"], found.get("items"), f"{path}[]")
    return faults
