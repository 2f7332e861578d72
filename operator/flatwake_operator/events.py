"""Events on the InferenceServer: one when something flips, never the same one again and again."""

import hashlib
import time
from collections import OrderedDict
from datetime import UTC, datetime

from flatwake_operator.api import Api
from flatwake_operator.errors import ApiError
from flatwake_operator.settings import Object

QUIET_SECONDS = 3600.0
REMEMBERED = 4096


class Events:
    def __init__(self, api: Api, instance: str) -> None:
        self.api = api
        self.instance = instance
        self._sent: OrderedDict[str, float] = OrderedDict()

    async def say(self, server: Object, reason: str, message: str, *, warning: bool) -> None:
        """Records an event unless the same one was recorded within the hour."""
        meta = server["metadata"]
        text = f"{meta['uid']}/{reason}/{message}"
        mark = hashlib.sha256(text.encode()).hexdigest()[:16]
        now = time.monotonic()
        if now - self._sent.get(mark, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._sent[mark] = now
        self._sent.move_to_end(mark)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)
        stamp = datetime.now(UTC)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name']}.{mark}.{int(stamp.timestamp())}",
                "namespace": meta["namespace"],
            },
            "involvedObject": {
                "apiVersion": server["apiVersion"],
                "kind": server["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "count": 1,
            "firstTimestamp": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTimestamp": stamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source": {"component": "flatwake-operator"},
            "reportingComponent": "flatwake.dev/operator",
            "reportingInstance": self.instance,
        }
        try:
            await self.api.create(event)
        except ApiError as error:
            if error.status not in (403, 404, 409):  # a namespace that ends takes no events
                raise
