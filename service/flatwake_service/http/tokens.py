"""`POST /tokenize` and `POST /detokenize`, in vLLM's shapes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from flatwake_service.http import reading, responses, schema
from flatwake_service.http.chat import check_messages
from flatwake_service.http.errors import ApiError, Code
from flatwake_service.http.sampling import check_ids
from flatwake_service.http.service import Service
from flatwake_service.http.wire import JsonResponse


async def tokenize(request: Request, service: Service) -> Response:
    _, language, limits = service.serving()
    body = await reading.read(request, service, schema.TokenizeRequest)
    service.model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(
            Code.MISSING_FIELD if body.prompt is None else Code.INVALID_VALUE,
            "give either 'prompt' or 'messages'",
            param="prompt",
        )
    if body.messages is not None:
        check_messages(body.messages)
        ids = await language.chat(
            body.messages,
            body.chat_template_kwargs,
            add_generation_prompt=body.add_generation_prompt,
        )
    else:
        ids = await language.text(body.prompt or "", add_special=body.add_special_tokens)
    return JsonResponse(responses.Tokens(len(ids), limits.context, ids))


async def detokenize(request: Request, service: Service) -> Response:
    _, language, _ = service.serving()
    body = await reading.read(request, service, schema.DetokenizeRequest)
    service.model(body.model)
    check_ids(body.tokens, "tokens", language.tokenizer.size)
    return JsonResponse(responses.Text(await language.decode(body.tokens)))
