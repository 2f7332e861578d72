"""`POST /v1/chat/completions`."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from flatwake_service.http import schema
from flatwake_service.http.answer import Answer
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.events import ChatEvents
from flatwake_service.http.generation import Prompt
from flatwake_service.http.intake import Intake
from flatwake_service.http.language import Language
from flatwake_service.http.logprobs import chat_logprobs
from flatwake_service.http.responses import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
)
from flatwake_service.http.sampling import (
    chat_logprobs as wanted_logprobs,
)
from flatwake_service.http.sampling import (
    check_prompt,
    max_tokens,
    sampling_params,
    stop_strings,
)
from flatwake_service.http.service import Service
from flatwake_service.http.stream import EventStream
from flatwake_service.http.wire import JsonResponse


async def chat(request: Request, service: Service) -> Response:
    """Answers a conversation, whole or as a stream."""
    intake = Intake(request, service)
    body = await intake.read(schema.ChatRequest)
    check_messages(body.messages)
    sampling = sampling_params(body, wanted_logprobs(body), intake.limits)
    with intake.admit() as admitted:
        language = intake.language
        ids = await language.chat(body.messages, body.chat_template_kwargs)
        check_prompt(ids, "messages", intake.limits)
        prompt = Prompt(tuple(ids), max_tokens(body, len(ids), intake.limits))
        generation = admitted.generation(sampling)
        request_id, created = f"chatcmpl-{intake.token}", int(time.time())
        if body.stream:
            options = body.stream_options or schema.StreamOptions()
            events = ChatEvents(
                request_id,
                created,
                intake.model,
                choices=body.n,
                usage=options.include_usage,
                scores=body.logprobs,
                tokenizer=language.tokenizer,
            )
            stream = EventStream(
                generation,
                events,
                ping=service.settings.ping,
                usage=options.include_usage,
                stamps=service.settings.trace_stamps,
            )
            admitted.submit(generation, [prompt], body.n, stop_strings(body), stream)
            return stream
        answer = Answer(body.n)
        admitted.submit(generation, [prompt], body.n, stop_strings(body), answer)
    usage = await answer.gather(generation, request.receive)
    return JsonResponse(
        ChatCompletion(
            id=request_id,
            created=created,
            model=intake.model,
            choices=_choices(answer, body.logprobs, language),
            usage=usage,
        )
    )


def check_messages(messages: list[schema.Message]) -> None:
    """What the schema can't say. Only an assistant's message may lack its content."""
    for index, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            param = f"messages[{index}].content"
            raise ApiError(Code.MISSING_FIELD, f"'{param}' is missing", param=param)


def _choices(answer: Answer, scores: bool, language: Language) -> list[ChatChoice]:
    choices = []
    for index, text in enumerate(answer.texts()):
        finish = answer.finish[index]
        assert finish is not None
        logprobs = chat_logprobs(answer.scored[index], language.tokenizer) if scores else None
        choices.append(ChatChoice(index, AssistantMessage(text), logprobs, finish))
    return choices
