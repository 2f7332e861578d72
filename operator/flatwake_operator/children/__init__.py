"""Builders: from a server and what was decided for it to its children, one kind a file, pure."""

from collections.abc import Callable

from flatwake_operator import kinds
from flatwake_operator.children import (
    account,
    autoscaler,
    budget,
    claim,
    device,
    monitor,
    network,
    pool,
    service,
)
from flatwake_operator.settings import Context, Object

PLAIN: dict[kinds.Kind, Callable[[Context], Object | None]] = {
    kinds.ACCOUNT: account.build,
    kinds.CLAIM: claim.build,
    kinds.DEVICE: device.build,
    kinds.SERVICE: service.build,
    kinds.NETWORK: network.build,
    kinds.BUDGET: budget.build,
    kinds.MONITOR: monitor.build,
    kinds.POOL: pool.build,
    kinds.AUTOSCALER: autoscaler.build,
}
"""Builders that need only the server and its decision; None means: no such child."""
