"""ControllerRevision: what was decided for a pin, immutable, so that an upgrade rolls nothing."""

from flatwake_service.manifest import Backend, Strategy

from flatwake_operator import labels
from flatwake_operator.children import deployment, device
from flatwake_operator.settings import Context, Decision, Object

KEPT = 2


def revision_name(server: str, pin: str) -> str:
    return f"{server}-{pin}"


def build(context: Context, pin: str, number: int, version: str) -> Object:
    decision = context.decision
    claim = device.claim_spec(context)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": labels.metadata(context, revision_name(context.name, pin), {labels.PIN: pin}),
        "revision": number,
        "data": {
            "deployment": deployment.spec(context, pin),
            "image": decision.image,
            "backend": decision.backend.value,
            "strategy": decision.strategy.value,
            "labelled": decision.labelled,
            "version": version,
        }
        | ({"claim": claim} if claim else {}),
    }


def decision(revision: Object) -> Decision:
    """What a revision has kept."""
    data = revision["data"]
    return Decision(
        image=data["image"],
        backend=Backend(data["backend"]),
        strategy=Strategy(data["strategy"]),
        labelled=data["labelled"],
    )
