"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from flatwake_service.http.responses import Model, ModelList
from flatwake_service.http.service import Service
from flatwake_service.http.wire import JsonResponse


async def models(request: Request, service: Service) -> Response:
    return JsonResponse(ModelList([_model(name, service) for name in service.settings.names]))


async def model(request: Request, service: Service) -> Response:
    name = service.model(request.path_params["model"])
    return JsonResponse(_model(name, service))


def _model(name: str, service: Service) -> Model:
    engine = service.engine
    started = engine.started if engine is not None else None
    return Model(
        id=name,
        created=service.created,
        max_model_len=started.context if started is not None else None,
        root=service.settings.source,
    )
