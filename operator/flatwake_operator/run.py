"""The operator's process: candidate, leader, end."""

import asyncio
import logging
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, cast

import kopf

from flatwake_operator import api as client
from flatwake_operator import kinds, labels
from flatwake_operator.api import Api
from flatwake_operator.errors import ApiError, UnreachableError
from flatwake_operator.events import Events
from flatwake_operator.keeper import Keeper
from flatwake_operator.keys import KeyQueue
from flatwake_operator.lease import Lease
from flatwake_operator.observe import Abilities, Observer, abilities, served
from flatwake_operator.probes import Probes
from flatwake_operator.reconcile import Reconciler
from flatwake_operator.resync import RESYNC_SECONDS, Resync
from flatwake_operator.settings import Settings
from flatwake_operator.startup import check_crd
from flatwake_operator.store import Key, Store
from flatwake_operator.watches import Watches

log = logging.getLogger(__name__)

WORKERS = 8
APIS_SECONDS = 300.0


@dataclass(frozen=True)
class Options:
    """How the process runs.

    namespaces: those that it looks after; all if empty. lease: its Lease's name; None: no election.
    """

    settings: Settings
    identity: str
    namespaces: list[str] = field(default_factory=list)
    lease: str | None = None
    port: int = 8080
    resync_seconds: float = RESYNC_SECONDS


async def run(options: Options) -> None:
    """Runs until SIGTERM or SIGINT; raises when the Lease is lost or a watch has died."""
    connection = client.connection()
    lease_api = Api(connection)
    place = options.settings.namespace
    lease = Lease(lease_api, place, options.lease, options.identity) if options.lease else None
    api = Api(connection, guard=lease.check if lease else _always)
    store = Store()
    queue: KeyQueue[Key] = KeyQueue(lambda key: _pass(key))
    watches = Watches(store, queue.add)
    probes = Probes(api, store, queue, watches, lease)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = await probes.serve(options.port)
    observer: Observer | None = None

    async def _pass(key: Key) -> float | None:
        started = time.monotonic()
        try:
            return await reconciler.reconcile(key)
        finally:
            probes.passes.observe(time.monotonic() - started)

    try:
        await check_crd(api)
        able = await abilities(lease_api, options.namespaces)
        observer = Observer(api, store, able)
        events = Events(api, options.identity)
        reconciler = Reconciler(api, store, observer, options.settings, events, version("flatwake"))
        if lease and not await _before(stop, lease.acquire()):
            return
        log.info("leading as %s", options.identity)
        resync = Resync(
            api,
            store,
            watches,
            observer,
            able,
            options.namespaces,
            queue.add,
            options.resync_seconds,
        )
        async with asyncio.TaskGroup() as group:
            # The first lists may take longer than a Lease lasts.
            keeper = Keeper(lease, lambda: Api(connection)) if lease else None
            tasks = [group.create_task(keeper.run())] if keeper else []
            await resync.once()
            tasks += [
                group.create_task(queue.run(WORKERS)),
                group.create_task(resync.forever()),
                group.create_task(_until_apis_change(lease_api, able, stop)),
            ]
            group.create_task(_watch(watches.registry(able), options, stop))
            await stop.wait()
            for task in tasks:
                task.cancel()
        # The group has waited for the keeper's thread: from here on the Lease is ours alone.
        if lease:
            await lease.release()
    finally:
        await runner.cleanup()
        if observer:
            await observer.close()
        await api.close()
        await lease_api.close()


def _always() -> None:
    """Without an election every write is allowed."""


async def _before(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Waits for work or for the end, whichever comes first; says whether work was done."""
    doing, ending = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not doing.done():
        doing.cancel()
        return False
    doing.result()
    return True


async def _until_apis_change(api: Api, able: Abilities, stop: asyncio.Event) -> None:
    """An API that comes or goes (a CRD of another project) is taken up by starting anew."""
    while True:
        await asyncio.sleep(APIS_SECONDS)
        try:
            changed = await served(api) != able.apis
        except (ApiError, UnreachableError) as error:
            log.warning("the APIs: %s", error)
            continue
        if changed:
            log.info("the cluster serves other APIs than before: starting anew")
            stop.set()


async def _watch(registry: kopf.OperatorRegistry, options: Options, stop: asyncio.Event) -> None:
    """kopf, with everything off but watching."""
    await kopf.operator(
        registry=registry,
        # Else kopf asks for the user's name, and a pod's user has none.
        identity=cast(Any, options.identity),
        settings=watch_settings(),
        standalone=True,
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        stop_flag=stop,
    )
    # kopf takes the signals for itself and returns when asked to end; a dead watch raises.
    stop.set()


def _is_child(resource: kopf.Resource) -> bool:
    return resource.plural not in (kinds.SERVER.plural, kinds.NODE.plural)


def watch_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # Children by our label alone: a cluster's other pods and ConfigMaps are none of our business.
    settings.watching.label_selectors[_is_child] = labels.SERVER
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 270
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    # A worker keeps its object while it idles, 5 s by default. Under a limit the events of other
    # objects wait for that, and pile up where more objects change than workers go home. Without
    # one they are taken at once; so they may go at once, too.
    settings.queueing.idle_timeout = 0.1
    return settings
