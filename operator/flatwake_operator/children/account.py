"""ServiceAccount: an identity of the pods' own, without any right."""

from flatwake_operator import labels
from flatwake_operator.settings import Context, Object


def account_name(context: Context) -> str:
    return context.server.spec.template.service_account_name or context.name


def build(context: Context) -> Object | None:
    if context.server.spec.template.service_account_name:
        return None
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": labels.metadata(context, context.name),
        "automountServiceAccountToken": False,
    }
