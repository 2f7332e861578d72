"""The driving process: reads a plan from stdin, plays it, writes an event a line to stdout.

It is a process of its own because gevent patches the whole interpreter, and because what
measures shouldn't also draw a progress bar.
"""

from __future__ import annotations

import json
import os
import sys

from .stage import Stage  # imports locust and with it gevent's patches, so it comes first

from .plan import Plan  # isort: skip
from .answer import Json
from .waves import play


def main() -> int:
    # Whoever prints something must not break the stream of events.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(event: Json) -> None:
        events.write(json.dumps(event) + "\n")

    plan = Plan.from_json(json.load(sys.stdin))
    stage = Stage(plan, emit)
    for wave in plan.waves:
        play(stage, wave)
    stage.crew.quit()
    emit({"event": "done"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
