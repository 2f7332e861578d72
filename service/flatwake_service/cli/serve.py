"""`flatwake serve`: one model, one engine, one port."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flatwake_service.cli.options import body_size, duration, startup
from flatwake_service.manifest import bounds, defaults

if TYPE_CHECKING:
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.http.service import Service
    from flatwake_service.http.settings import Settings

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class BackendName(StrEnum):
    auto = "auto"
    hip = "hip"
    cpu = "cpu"
    reference = "reference"
    emulation = "emulation"
    cuda = "cuda"


class Activations(StrEnum):
    auto = "auto"
    float = "float"
    int8 = "int8"


class KvDtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


class Graphs(StrEnum):
    auto = "auto"
    on = "on"
    off = "off"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class UnknownFields(StrEnum):
    refuse = "refuse"
    ignore = "ignore"


OnReady = Callable[["Service", str], None]
"""Called with the endpoint when the server takes requests."""


@app.command()
def serve(
    context: typer.Context,
    model: Annotated[Path, typer.Option(help="A GGUF file or a Hugging Face folder.")],
    served_name: Annotated[
        str | None, typer.Option(help="The model's name in requests; else the file's.")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name; repeatable.")] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; else all, IPv4 and IPv6.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 takes a free one.")
    ] = defaults.SERVE_PORT,
    backend: Annotated[BackendName, typer.Option(help="What computes.")] = BackendName.auto,
    activations: Annotated[
        Activations, typer.Option(help="What quantised weights are multiplied with.")
    ] = Activations.auto,
    max_sequences: Annotated[
        int, typer.Option(min=1, max=defaults.MAX_SEQUENCES_LIMIT, help="Sequences that run.")
    ] = defaults.MAX_SEQUENCES,
    context_length: Annotated[
        int | None,
        typer.Option(
            min=bounds.CONTEXT_MIN, max=bounds.CONTEXT_MAX, help="Tokens; else the model's."
        ),
    ] = None,
    prefill_tokens: Annotated[
        int,
        typer.Option(
            min=defaults.PREFILL_GRAIN, max=bounds.PREFILL_MAX, help="Prompt tokens a step."
        ),
    ] = defaults.PREFILL_TOKENS,
    kv_memory_fraction: Annotated[
        float | None,
        typer.Option(
            min=bounds.MEMORY_FRACTION_MIN,
            max=bounds.MEMORY_FRACTION_MAX,
            help="Share of the free memory for KV.",
        ),
    ] = None,
    kv_dtype: Annotated[KvDtype, typer.Option(help="What KV is kept in.")] = KvDtype.auto,
    graphs: Annotated[Graphs, typer.Option(help="Device graphs.")] = Graphs.auto,
    queue: Annotated[
        int,
        typer.Option(
            min=bounds.QUEUE_MIN,
            max=bounds.QUEUE_MAX,
            help="Requests that may wait; more get 429.",
        ),
    ] = defaults.QUEUE,
    queue_timeout: Annotated[
        Any, typer.Option(parser=duration, metavar="DURATION", help="Longest wait.")
    ] = defaults.QUEUE_TIMEOUT,
    request_timeout: Annotated[
        Any, typer.Option(parser=duration, metavar="DURATION", help="Longest request.")
    ] = defaults.REQUEST_TIMEOUT,
    step_timeout: Annotated[
        Any, typer.Option(parser=duration, metavar="DURATION", help="When an engine is hung.")
    ] = defaults.STEP_TIMEOUT,
    body_bytes: Annotated[
        Any, typer.Option(parser=body_size, metavar="QUANTITY", help="Largest request body.")
    ] = defaults.BODY_BYTES,
    drain_timeout: Annotated[
        Any, typer.Option(parser=duration, metavar="DURATION", help="Longest drain.")
    ] = defaults.REQUEST_TIMEOUT,
    startup_timeout: Annotated[
        Any,
        typer.Option(parser=startup, metavar="DURATION", help="Longest load without progress."),
    ] = defaults.STARTUP_TIMEOUT,
    api_keys_dir: Annotated[
        Path | None, typer.Option(help="A folder of API keys; without it, nobody is asked.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may call; repeatable.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="A file that replaces the model's chat template.")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="One line an event.")] = LogFormat.text,
    ping: Annotated[
        float, typer.Option(min=0, help="Seconds of a stream's silence until a comment; 0: never.")
    ] = 15.0,
    unknown_fields: Annotated[
        UnknownFields, typer.Option(help="What to do about a request's unknown fields.")
    ] = UnknownFields.refuse,
    trace_stamps: Annotated[
        bool, typer.Option(help="Put the engine's stamp before each event, as a comment.")
    ] = False,
) -> None:
    """Serve a model over OpenAI's API until a signal drains the server.

    `/status` and `/health` answer while the model loads, `/ready` when it serves. Exits 0 after a
    drain, 1 when the model or the engine failed, 2 for bad arguments.
    """
    if prefill_tokens % defaults.PREFILL_GRAIN:
        raise typer.BadParameter(
            f"--prefill-tokens must be a multiple of {defaults.PREFILL_GRAIN}, got {prefill_tokens}"
        )
    from flatwake_service.engine.config import EngineConfig
    from flatwake_service.http.provenance import provenance
    from flatwake_service.http.settings import Settings

    origin = provenance(model)
    settings = Settings(
        served_name=served_name or _name(model),
        source=origin.source or str(model),
        revision=origin.revision,
        digest=origin.digest,
        aliases=tuple(alias or ()),
        host=host,
        port=port,
        context_length=context_length,
        max_sequences=max_sequences,
        queue=queue,
        queue_timeout=queue_timeout,
        request_timeout=request_timeout,
        drain_timeout=drain_timeout,
        body_bytes=body_bytes,
        api_keys_dir=api_keys_dir,
        cors_origins=tuple(cors_origin or ()),
        chat_template=chat_template,
        log_format=log_format.value,
        ping=ping,
        unknown_fields=unknown_fields.value,
        trace_stamps=trace_stamps,
    )
    config = EngineConfig(
        model=str(model),
        backend="reference",
        activations=activations.value,
        max_sequences=max_sequences,
        context_length=context_length,
        prefill_tokens=prefill_tokens,
        kv_memory_fraction=kv_memory_fraction,
        kv_dtype=kv_dtype.value,
        graphs=graphs.value,
        look_ahead="auto",
        log_format=log_format.value,
    )
    hook: OnReady | None = context.obj
    code = _serve(settings, config, backend.value, step_timeout, startup_timeout, hook)
    raise typer.Exit(code)


def _serve(
    settings: Settings,
    config: EngineConfig,
    backend: str,
    step_timeout: float,
    startup_timeout: float,
    on_ready: OnReady | None,
) -> int:
    import asyncio

    import uvloop

    from flatwake_service.cli import start
    from flatwake_service.http import listener
    from flatwake_service.http.log import Log

    bound = listener.bind(settings.host, settings.port)
    endpoint = listener.endpoint(bound)
    log = Log(settings.log_format)
    log("listening", endpoint=endpoint, model=settings.served_name)

    def ready(served: Service) -> None:
        engine = served.engine
        assert engine is not None
        assert engine.started is not None
        started = engine.started
        log(
            "serving",
            endpoint=endpoint,
            model=settings.served_name,
            backend=started.backend,
            device=started.device.name,
            context=started.context,
            kv_tokens=started.kv_tokens,
        )
        if on_ready is not None:
            on_ready(served, endpoint)

    served = start.serve(
        settings,
        config,
        backend,
        bound,
        log,
        step_timeout=step_timeout,
        start_timeout=startup_timeout,
        on_ready=ready,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(served)


def _name(model: Path) -> str:
    return model.name.removesuffix(".gguf") or "model"
