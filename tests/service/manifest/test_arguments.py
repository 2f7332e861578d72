"""One function turns a spec into the arguments of `flatwake serve`."""

import pytest
import yaml
from flatwake_service.manifest import Backend, InferenceServer, Place, ignored_by_up, parse
from flatwake_service.manifest.arguments import IGNORED_BY_UP, fetch_arguments, serve_arguments


def server(**spec: object) -> InferenceServer:
    return parse(
        {
            "apiVersion": "flatwake.dev/v1alpha1",
            "kind": "InferenceServer",
            "metadata": {"name": "chat"},
            "spec": {"model": {"source": "file:///m.gguf"}} | spec,
        }
    )


def test_only_what_differs_from_the_defaults_is_passed() -> None:
    assert serve_arguments(server(), Place("/m.gguf")) == [
        *("--model", "/m.gguf"),
        *("--served-name", "chat"),
    ]


def test_a_default_written_another_way_is_still_the_default() -> None:
    spelled = server(
        limits={"queueTimeout": "1m", "requestTimeout": "10m", "bodyBytes": "4096Ki"},
        startupTimeout="600s",
    )
    assert len(serve_arguments(spelled, Place("/m.gguf"))) == 4


def test_every_field_reaches_its_argument() -> None:
    full = server(
        model={"source": "file:///m.gguf", "name": "big", "aliases": ["b", "c"]},
        accelerator={"backend": "Hip"},
        engine={
            "maxSequences": 16,
            "contextLength": 4096,
            "prefillTokens": 256,
            "kvCache": {"memoryFraction": 0.8, "dtype": "BFloat16"},
            "graphs": "Off",
        },
        limits={
            "queue": 10,
            "queueTimeout": "5s",
            "requestTimeout": "90s",
            "stepTimeout": "10s",
            "bodyBytes": "1Mi",
        },
        startupTimeout="3m",
        access={"corsOrigins": ["https://a.example"]},
    )
    place = Place("/m.gguf", "127.0.0.1", 9000, None, "/keys", "/chat.jinja")
    assert " ".join(serve_arguments(full, place)) == (
        "--model /m.gguf --served-name big --alias b --alias c --host 127.0.0.1 --port 9000 "
        "--backend hip --max-sequences 16 --context-length 4096 --prefill-tokens 256 "
        "--kv-memory-fraction 0.8 --kv-dtype bfloat16 --graphs off --queue 10 --queue-timeout 5s "
        "--request-timeout 90s --step-timeout 10s --body-bytes 1Mi --drain-timeout 90s "
        "--startup-timeout 3m --api-keys-dir /keys --cors-origin https://a.example "
        "--chat-template /chat.jinja"
    )


def test_the_decided_backend_replaces_auto() -> None:
    words = serve_arguments(server(), Place("/m.gguf", backend=Backend.CPU))
    assert words[words.index("--backend") + 1] == "cpu"


def test_drain_lasts_as_long_as_a_request_unless_said_otherwise() -> None:
    words = serve_arguments(server(limits={"requestTimeout": "30s"}), Place("/m"))
    assert words[words.index("--drain-timeout") + 1] == "30s"
    words = serve_arguments(server(limits={"drainTimeout": "5s"}), Place("/m"))
    assert words[words.index("--drain-timeout") + 1] == "5s"
    assert "--request-timeout" not in words


def test_up_names_the_fields_that_it_ignores() -> None:
    given = server(replicas=2, template={"labels": {"a": "b"}}, engine={"maxSequences": 4})
    assert ignored_by_up(given) == ["replicas", "template"]


@pytest.mark.parametrize("path", IGNORED_BY_UP)
def test_every_ignored_path_is_a_field(path: str) -> None:
    node = yaml.safe_load(yaml.safe_dump(InferenceServer.model_json_schema(by_alias=True)))
    definitions = node["$defs"]
    here = definitions["InferenceServerSpec"]
    for piece in path.split("."):
        assert piece in here["properties"]
        target = here["properties"][piece]
        options = [target, *target.get("anyOf", []), *target.get("allOf", [])]
        references = [o["$ref"] for o in options if "$ref" in o]
        here = definitions[references[0].rsplit("/", 1)[-1]] if references else {}


def fetched(backend: Backend = Backend.CPU, **spec: object) -> str:
    words = fetch_arguments(server(**spec), cache="/c", backend=backend, pinned_dir="/p")
    return " ".join(words)


def test_fetch_gets_the_source_and_where_to_answer() -> None:
    assert fetched(model={"source": "hf://o/r@v1"}) == (
        "hf://o/r@v1 --cache /c --pinned-dir /p --status-port 8000"
    )


def test_a_claims_model_is_only_verified() -> None:
    model = {"source": "pvc://claim/a/m.gguf", "digest": "sha256:" + "0" * 64}
    assert fetched(model=model).startswith("file:///c/a/m.gguf --cache /c --digest sha256:0")


def test_on_hip_the_device_is_looked_at_first() -> None:
    accelerator = {"architectures": ["gfx942"], "minMemory": "64Gi"}
    words = fetched(Backend.HIP, accelerator=accelerator)
    assert words.endswith("--preflight --architecture gfx942 --min-memory 64Gi")
    assert "--preflight" not in fetched(Backend.CPU, accelerator=accelerator)


def test_the_commands_know_all_of_these_arguments() -> None:
    """The commands are written by other hands: what is passed must be there."""
    from flatwake_service.cli import fetch, serve
    from typer.main import get_command

    known = {
        name: {option for p in get_command(module.app).params for option in p.opts}
        for name, module in (("fetch", fetch), ("serve", serve))
    }
    model = {
        "source": "hf://o/r",
        "digest": "sha256:" + "0" * 64,
        "aliases": ["a"],
        "cache": {"size": "1Gi"},
    }
    everything = server(
        model=model,
        accelerator={"architectures": ["gfx942"], "minMemory": "1Gi"},
        engine={
            "maxSequences": 2,
            "contextLength": 64,
            "prefillTokens": 64,
            "kvCache": {"memoryFraction": 0.5, "dtype": "Float16"},
            "graphs": "On",
        },
        limits={
            "queue": 1,
            "queueTimeout": "1s",
            "requestTimeout": "1s",
            "stepTimeout": "1s",
            "bodyBytes": "1Mi",
        },
        startupTimeout="1m",
        access={"corsOrigins": ["*"]},
    )
    serving = serve_arguments(everything, Place("/m", "::", 1, Backend.HIP, "/k", "/t"))
    fetching = fetch_arguments(
        everything, cache="/c", backend=Backend.HIP, token_file="/t", pinned_dir="/p"
    )
    for name, words in (("serve", serving), ("fetch", fetching)):
        assert {word for word in words if word.startswith("--")} <= known[name], name
