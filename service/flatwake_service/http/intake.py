"""The way in, which both kinds of completion share: read, judge, admit, submit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import Request

from flatwake_service.engine.messages import SamplingParams
from flatwake_service.http import reading, schema
from flatwake_service.http.admission import Ticket
from flatwake_service.http.choice import Output
from flatwake_service.http.engine import Engine
from flatwake_service.http.errors import ApiError
from flatwake_service.http.exchange import Exchange, exchange_of
from flatwake_service.http.generation import Generation, Prompt
from flatwake_service.http.language import Language
from flatwake_service.http.sampling import Limits
from flatwake_service.http.service import Service

B = TypeVar("B", bound=schema.Sampling)


class Intake:
    """One request on its way in. After `read`, `engine`, `language`, `limits` and `model` are its.

    A request that is refused before it was admitted counts as rejected.
    """

    engine: Engine
    language: Language
    limits: Limits
    model: str

    def __init__(self, request: Request, service: Service) -> None:
        self._request = request
        self._service = service
        self._exchange: Exchange = exchange_of(request.scope)

    @property
    def token(self) -> str:
        """The request's id, for the answer's `id`."""
        return self._exchange.id.decode()

    async def read(self, kind: type[B]) -> B:
        service = self._service
        self.engine, self.language, self.limits = service.serving()
        body = await reading.read(self._request, service, kind)
        self.model = service.model(body.model)
        return body

    @contextmanager
    def admit(self) -> Iterator[Admitted]:
        """A place in the queue, given back unless something was submitted."""
        admitted = Admitted(self, self._service, self._exchange)
        try:
            yield admitted
        finally:
            if not admitted.submitted:
                admitted.ticket.leave()


class Admitted:
    def __init__(self, intake: Intake, service: Service, exchange: Exchange) -> None:
        self._intake = intake
        self._service = service
        self._exchange = exchange
        self.submitted = False
        self.ticket: Ticket = service.admission.enter()

    def generation(self, sampling: SamplingParams) -> Generation:
        settings = self._service.settings
        return Generation(
            self._intake.engine,
            self._service.admission,
            self.ticket,
            self._service.counters,
            sampling,
            arrival=self._exchange.arrival,
            request_timeout=settings.request_timeout,
            queue_timeout=settings.queue_timeout,
            on_end=self._ended,
        )

    def submit(
        self,
        generation: Generation,
        prompts: Sequence[Prompt],
        n: int,
        stop: Sequence[str],
        output: Output,
    ) -> None:
        service = self._service
        # The engine may have ended while the prompt was tokenised.
        service.serving(admitted=True)
        service.open.add(generation)
        self.submitted = True
        tokenizer = self._intake.language.tokenizer
        generation.submit(prompts, n, stop, tokenizer, output, service.next_sequence)

    def _ended(self, generation: Generation) -> None:
        self._service.open.discard(generation)
        fields = self._exchange.fields
        fields["outcome"] = generation.outcome
        fields["prompt_tokens"] = generation.prompt_tokens
        fields["generated_tokens"] = sum(choice.generated for choice in generation.choices)
        if isinstance(generation.error, ApiError):
            fields["code"] = generation.error.code.value
