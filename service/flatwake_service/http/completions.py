"""`POST /v1/completions`."""

from __future__ import annotations

import time
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from flatwake_service.http import schema
from flatwake_service.http.answer import Answer
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.events import CompletionEvents
from flatwake_service.http.generation import Prompt
from flatwake_service.http.intake import Intake
from flatwake_service.http.logprobs import completion_logprobs
from flatwake_service.http.responses import Completion, CompletionChoice
from flatwake_service.http.sampling import (
    check_ids,
    check_prompt,
    max_tokens,
    sampling_params,
    stop_strings,
)
from flatwake_service.http.sampling import completion_logprobs as wanted_logprobs
from flatwake_service.http.service import Service
from flatwake_service.http.stream import EventStream
from flatwake_service.http.wire import JsonResponse

MAX_SEQUENCES = 64
"""Prompts times n of one request, which counts once against the queue."""


async def completions(request: Request, service: Service) -> Response:
    """Continues one prompt or several, whole or as a stream."""
    intake = Intake(request, service)
    body = await intake.read(schema.CompletionRequest)
    top = wanted_logprobs(body)
    sampling = sampling_params(body, top, intake.limits)
    given = split_prompts(body.prompt)
    check_count(len(given), body.n)
    with intake.admit() as admitted:
        prompts, echoes = [], []
        for prompt in given:
            ids = await _ids(prompt, body, intake)
            prompts.append(Prompt(tuple(ids), max_tokens(body, len(ids), intake.limits)))
            echo = await _echo(prompt, intake) if body.echo else ""
            echoes += [echo] * body.n
        generation = admitted.generation(sampling)
        request_id, created = f"cmpl-{intake.token}", int(time.time())
        if body.stream:
            options = body.stream_options or schema.StreamOptions()
            events = CompletionEvents(
                request_id,
                created,
                intake.model,
                echoes=echoes,
                usage=options.include_usage,
                top=top,
                tokenizer=intake.language.tokenizer,
            )
            stream = EventStream(
                generation,
                events,
                ping=service.settings.ping,
                usage=options.include_usage,
                stamps=service.settings.trace_stamps,
            )
            admitted.submit(generation, prompts, body.n, stop_strings(body), stream)
            return stream
        answer = Answer(len(echoes))
        admitted.submit(generation, prompts, body.n, stop_strings(body), answer)
    usage = await answer.gather(generation, request.receive)
    choices = []
    for index, text in enumerate(answer.texts()):
        scored = answer.scored[index]
        scores = completion_logprobs(scored, intake.language.tokenizer, top) if top >= 0 else None
        finish = answer.finish[index]
        choices.append(CompletionChoice(index, echoes[index] + text, scores, finish))
    return JsonResponse(Completion(request_id, created, intake.model, choices, usage=usage))


def split_prompts(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """The prompts that a request holds: one text, one list of ids, or a list of either.

    Raises:
        ApiError: it holds none, or a mixture.
    """
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError(Code.INVALID_VALUE, "'prompt' is an empty list", param="prompt")
    kinds = {type(part) for part in prompt}
    if len(kinds) > 1:
        raise ApiError(
            Code.INVALID_TYPE,
            "'prompt' mixes kinds: give texts, or token ids, or lists of token ids",
            param="prompt",
        )
    if kinds == {int}:
        return [cast("list[int]", prompt)]
    return cast("list[str | list[int]]", prompt)


def check_count(prompts: int, n: int) -> None:
    if prompts * n > MAX_SEQUENCES:
        raise ApiError(
            Code.INVALID_VALUE,
            f"'prompt' must hold at most {MAX_SEQUENCES // n} prompts with n = {n}, got {prompts}",
            param="prompt",
        )


async def _ids(
    prompt: str | list[int], body: schema.CompletionRequest, intake: Intake
) -> list[int]:
    if isinstance(prompt, str):
        if not prompt:
            raise ApiError(Code.INVALID_VALUE, "'prompt' is empty", param="prompt")
        ids = await intake.language.text(prompt, add_special=body.add_special_tokens)
        return check_prompt(ids, "prompt", intake.limits)
    return check_ids(prompt, "prompt", intake.limits.vocabulary)


async def _echo(prompt: str | list[int], intake: Intake) -> str:
    return prompt if isinstance(prompt, str) else await intake.language.decode(prompt)
