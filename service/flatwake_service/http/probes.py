"""What kubelet, the operator, Prometheus and people ask: health, ready, status, metrics, version.

They want no key and no engine, so they answer while a model loads.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from flatwake_service.http.metrics import CONTENT_TYPE, exposition
from flatwake_service.http.responses import Health, Readiness, Version
from flatwake_service.http.service import Service
from flatwake_service.http.wire import JsonResponse


async def health(request: Request, service: Service) -> Response:
    """The process lives and its event loop turns."""
    return JsonResponse(Health())


async def ready(request: Request, service: Service) -> Response:
    """200 if new requests are welcome, else 503 with the reason."""
    is_ready, reason, message = service.readiness()
    body = Readiness(is_ready, reason.value, message)
    return JsonResponse(body, 200 if is_ready else 503)


async def status(request: Request, service: Service) -> Response:
    return JsonResponse(service.status().model_dump_json().encode())


async def metrics(request: Request, service: Service) -> Response:
    return Response(await exposition(service), media_type=CONTENT_TYPE)


async def version(request: Request, service: Service) -> Response:
    return JsonResponse(Version(service.version))
