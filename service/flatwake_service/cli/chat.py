"""`flatwake chat`: a conversation with any OpenAI-compatible server, in the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import httpx

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

DEFAULT_URL = "http://127.0.0.1:8000/v1"
HELP = """\
/system TEXT  set the system message (without TEXT: show it)
/clear        begin a new conversation
/exit         leave; so does Ctrl-D
Ctrl-C stops an answer; Alt-Enter begins a new line."""

Message = dict[str, str]


@app.command()
def chat(
    message: Annotated[
        str | None, typer.Argument(help="Ask this alone, print the answer, and end.")
    ] = None,
    url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", help="The server's /v1.")
    ] = DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="A served name; else the first.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, max=2.0)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Talk to a server. The key is taken from OPENAI_API_KEY.

    Lines that begin with / are commands: /system, /clear, /exit, /help.
    """
    import httpx

    options = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
    given = {name: value for name, value in options.items() if value is not None}
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(10.0, read=None)
    with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout) as client:
        try:
            conversation = Conversation(client, given, system)
            if message is not None:
                for piece in conversation.ask(message):
                    print(piece, end="", flush=True)
                print()
                return
            _converse(conversation, _served(client, model))
        except ChatError as error:
            print(f"flatwake chat: {error}", file=sys.stderr)
            raise typer.Exit(1) from error


class ChatError(Exception):
    """The server can't be reached, refused, or ended an answer with an error."""


class Conversation:
    """The messages so far, and the server that continues them."""

    def __init__(
        self, client: httpx.Client, options: dict[str, Any], system: str | None = None
    ) -> None:
        self._client = client
        self._options = options
        self.system = system
        self.messages: list[Message] = []

    @property
    def url(self) -> str:
        return str(self._client.base_url).rstrip("/")

    def ask(self, text: str) -> Iterator[str]:
        """The answer's pieces. What was said of a stopped answer stays part of the conversation;
        a question without any answer doesn't.

        Raises:
            ChatError
        """
        question = {"role": "user", "content": text}
        first = [{"role": "system", "content": self.system}] if self.system else []
        body = {
            "messages": [*first, *self.messages, question],
            "stream": True,
            **self._options,
        }
        pieces: list[str] = []
        try:
            for piece in self._stream(body):
                pieces.append(piece)
                yield piece
        finally:
            if pieces:
                self.messages += [question, {"role": "assistant", "content": "".join(pieces)}]

    def _stream(self, body: dict[str, Any]) -> Iterator[str]:
        import httpx

        try:
            with self._client.stream("POST", "/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise ChatError(_message(response))
                yield from _pieces(response.iter_lines())
        except httpx.HTTPError as error:
            raise ChatError(_unreachable(self._client, error)) from error


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    """The text in a stream's events."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise ChatError(event["error"]["message"])
        for choice in event["choices"]:
            if content := choice["delta"].get("content"):
                yield content
    raise ChatError("the server ended the answer before it was complete")


def _served(client: httpx.Client, model: str | None) -> str:
    """The name of what is talked to. Raises ChatError."""
    import httpx

    try:
        response = client.get("/models")
        if response.status_code != 200:
            raise ChatError(_message(response))
        return model or str(response.json()["data"][0]["id"])
    except httpx.HTTPError as error:
        raise ChatError(_unreachable(client, error)) from error
    except (ValueError, KeyError, IndexError) as error:
        raise ChatError(f"{client.base_url} isn't an OpenAI-compatible server") from error


def _unreachable(client: httpx.Client, error: Exception) -> str:
    base = str(client.base_url).rstrip("/")
    return f"no server answers at {base} ({error}); start one with `flatwake up`, or give --url"


def _message(response: httpx.Response) -> str:
    """What a server says about a refusal."""
    try:
        text = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        text = response.text.strip()[:300]
    return f"{response.status_code}: {text}"


def _converse(conversation: Conversation, name: str) -> None:
    """The dialogue, until Ctrl-D or /exit."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings
    from rich.console import Console

    console = Console()
    bindings = KeyBindings()
    bindings.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history())), key_bindings=bindings
    )
    console.print(
        f"[bold]{name}[/bold] at {conversation.url} (/help, Ctrl-D ends)", highlight=False
    )
    while True:
        try:
            text = session.prompt("> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.startswith("/"):
            if not _command(conversation, text, console):
                return
        elif text:
            _show(conversation, text, console)


def _show(conversation: Conversation, text: str, console: Any) -> None:
    """Renders an answer while it comes. Ctrl-C ends the answer alone."""
    from rich.live import Live
    from rich.markdown import Markdown

    said = ""
    try:
        with Live(console=console, refresh_per_second=12, vertical_overflow="visible") as live:
            for piece in conversation.ask(text):
                said += piece
                live.update(Markdown(said))
    except KeyboardInterrupt:
        console.print("[dim](stopped)[/dim]")
    except ChatError as error:
        console.print(f"[red]{error}[/red]", highlight=False)


def _command(conversation: Conversation, text: str, console: Any) -> bool:
    """Obeys a / line; whether to go on."""
    word, _, rest = text.partition(" ")
    if word in ("/exit", "/quit"):
        return False
    if word == "/clear":
        conversation.messages.clear()
        console.print("[dim]a new conversation[/dim]")
    elif word == "/system":
        if rest:
            conversation.system = rest.strip()
        console.print(f"[dim]system: {conversation.system or 'none'}[/dim]")
    else:
        console.print(HELP, highlight=False)
    return True


def _history() -> Path:
    """A file that only the user can read; created if need be."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "flatwake"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chat-history"
    path.touch(mode=0o600)
    return path
