"""A server's state: who serves, in which phase, and what is open."""

from __future__ import annotations

import asyncio
import itertools
import os
import time

from flatwake_service.http.admission import Admission
from flatwake_service.http.counters import Counters
from flatwake_service.http.engine import Engine
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.generation import Generation
from flatwake_service.http.keys import Keys
from flatwake_service.http.language import Language
from flatwake_service.http.log import Log
from flatwake_service.http.process import Processes
from flatwake_service.http.room import TOTAL, Room
from flatwake_service.http.sampling import Limits
from flatwake_service.http.settings import Settings
from flatwake_service.manifest import (
    DeviceStatus,
    ModelStatus,
    Phase,
    ProcessIds,
    Reason,
    ServerStatus,
)
from flatwake_service.version import package_version


class Service:
    """Owned by the event loop. `engine` and `language` are None until they have been loaded.

    `draining`: SIGTERM fell, requests are still taken. `closed`: none is taken any more.
    """

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings = settings
        self.log = log or Log(settings.log_format)
        self.counters = Counters()
        self.admission = Admission(settings.queue, settings.max_sequences)
        self.room = Room(max(TOTAL, settings.body_bytes))
        self.decoding = asyncio.Lock()
        self.keys = Keys(settings.api_keys_dir)
        self.processes = Processes()
        self.version = package_version()
        self.created = int(time.time())
        self.engine: Engine | None = None
        self.language: Language | None = None
        self.failure: tuple[str, str] | None = None
        """Reason and message of what ends this server."""
        self.draining = False
        self.closed = False
        self.open: set[Generation] = set()
        """Requests that are in the engine."""
        self._sequences = itertools.count(1)

    def next_sequence(self) -> int:
        return next(self._sequences)

    @property
    def phase(self) -> Phase:
        if self.failure is not None:
            return Phase.FAILED
        if self.draining:
            return Phase.DRAINING
        engine = self.engine
        if engine is not None and engine.failure is not None:
            return Phase.FAILED
        if engine is not None and engine.started is not None:
            return Phase.LOADING if self.language is None else Phase.READY
        if engine is not None and engine.progress is not None:
            return Phase(engine.progress.phase)
        return Phase.LOADING

    def readiness(self) -> tuple[bool, Reason, str]:
        """Whether new requests are welcome; why not, and what to do about it."""
        phase = self.phase
        if phase is Phase.FAILED:
            reason, message = self._failed()
            return False, reason, message
        if phase is Phase.DRAINING:
            return False, Reason.DRAINING, "the server is draining and ends soon"
        if phase is not Phase.READY:
            reason = Reason.WARMING if phase is Phase.WARMING else Reason.LOADING
            return False, reason, f"the model is {phase.value}"
        if self.keys.missing:
            folder = self.settings.api_keys_dir
            return False, Reason.KEYS_MISSING, f"no file in {folder} holds a usable API key"
        if reduced := self.context_reduced:
            return True, Reason.CONTEXT_REDUCED, reduced
        return True, Reason.SERVING, f"serving {self.settings.served_name}"

    def _failed(self) -> tuple[Reason, str]:
        if self.failure is not None:
            reason, message = self.failure
        else:
            assert self.engine is not None
            assert self.engine.failure is not None
            reason, message = self.engine.failure.reason, self.engine.failure.message
        known = reason in set(Reason)
        return (Reason(reason) if known else Reason.ENGINE_FAILED), message

    @property
    def context_reduced(self) -> str | None:
        """Why the context is less than what was asked for, or than the model's; None if it isn't.

        Once the engine has started.
        """
        started = self.engine.started if self.engine is not None else None
        if started is None:
            return None
        asked, most = self.settings.context_length, started.model_context
        wanted = min(asked or most, most)
        serving = f"serving {self.settings.served_name} with a context of {started.context} tokens"
        if started.context < wanted:
            return (
                f"{serving}, not {wanted}: the memory for KV holds no more; give it more memory, "
                "or ask for that context"
            )
        if asked is not None and asked > most:
            return f"{serving}, not {asked}: the model was made for no more; ask for that context"
        return None

    def status(self) -> ServerStatus:
        settings, engine = self.settings, self.engine
        started = engine.started if engine is not None else None
        progress = engine.progress if engine is not None else None
        loading = progress if progress is not None and progress.phase == "loading" else None
        _, reason, message = self.readiness()
        device = DeviceStatus()
        total, done = (loading.total, loading.done) if loading else (None, None)
        if started is not None:
            device = DeviceStatus(
                name=started.device.name,
                architecture=started.device.architecture,
                memory_bytes=started.device.memory_bytes,
            )
            total = done = started.model_bytes
        return ServerStatus(
            phase=self.phase,
            reason=reason,
            message=message,
            model=ModelStatus(
                name=settings.served_name,
                source=settings.source,
                revision=settings.revision,
                digest=settings.digest,
                bytes_total=total,
                bytes_done=done,
            ),
            backend=started.backend if started else None,
            device=device,
            context=started.context if started else None,
            kv_tokens=started.kv_tokens if started else None,
            max_sequences=settings.max_sequences,
            pids=ProcessIds(api=os.getpid(), engine=engine.pid if engine is not None else None),
            version=self.version,
        )

    def serving(self, *, admitted: bool = False) -> tuple[Engine, Language, Limits]:
        """What a request needs. One that was admitted before the server closed is still served.

        Raises:
            ApiError: no request is taken now.
        """
        phase = self.phase
        if self.closed and not admitted:
            raise ApiError(
                Code.DRAINING,
                "the server is shutting down and takes no more requests",
                retry_after=1,
            )
        if phase is Phase.FAILED:
            reason, message = self._failed()
            raise ApiError(Code.ENGINE_FAILED, f"the engine ended ({reason.value}): {message}")
        engine, language = self.engine, self.language
        if engine is None or engine.started is None or language is None:
            raise ApiError(
                Code.MODEL_LOADING,
                f"the model is still {phase.value}; /ready says when it serves",
                retry_after=5,
            )
        return engine, language, self._limits(engine, language)

    def _limits(self, engine: Engine, language: Language) -> Limits:
        assert engine.started is not None
        # A tokenizer may have tokens that its model has no row for, and the other way round.
        vocabulary = min(language.tokenizer.size, engine.started.vocabulary)
        # By way of a list: CPython keeps thousands of the tuples that it shortens for a generator.
        eos_ids = [number for number in language.tokenizer.eos_ids if number < vocabulary]
        return Limits(
            context=engine.started.context,
            vocabulary=vocabulary,
            eos_ids=tuple(eos_ids),
            max_sequences=self.settings.max_sequences,
            sampling=language.sampling,
        )

    def model(self, name: str | None) -> str:
        """The name to answer with.

        Raises:
            ApiError: nothing of this name is served.
        """
        names = self.settings.names
        if name is None:
            return names[0]
        if name not in names:
            served = ", ".join(f"'{known}'" for known in names)
            raise ApiError(
                Code.MODEL_NOT_FOUND,
                f"the model '{name[:200]}' isn't served here; served: {served}",
                param="model",
            )
        return name
