"""Chat templates: what published ones need works, and none can hang or fill the memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from flatwake_service.errors import TemplateError
from flatwake_service.text import ChatTemplate, load_template, load_tokenizer
from flatwake_service.weights import Checkpoint, open_checkpoint
from tiny_models import CHATML, write_tiny

HELLO = [{"role": "user", "content": 'Hello <&> "é"'}]


def render(source: str, messages: Any = HELLO, **variables: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages, **variables)


def test_chatml_renders_as_published() -> None:
    system = {"role": "system", "content": "Be brief."}
    assert render(CHATML, [system, *HELLO]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        '<|im_start|>user\nHello <&> "é"<|im_end|>\n<|im_start|>assistant\n'
    )
    assert render(CHATML, add_generation_prompt=False).endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", '<s>Hello <&> "é"'),
        ("{{ messages|tojson }}", json.dumps(HELLO, ensure_ascii=False)),
        ("{{ messages[0]|tojson(indent=2) }}", json.dumps(HELLO[0], indent=2, ensure_ascii=False)),
        ("{% generation %}a{% set x = 1 %}{% endgeneration %}b{{ x is defined }}", "abFalse"),
        ("{{ dict(a=1)|tojson }}{{ dict([('b', 2)])['b'] }}", '{"a": 1}2'),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% for i in 'abc' %}{{ loop.index }}/{{ loop.length }}{{ i }} {% endfor %}",
            "1/3a 2/3b 3/3c ",
        ),
        ("{% for m in messages[::-1] %}{{ loop.last }}{% endfor %}", "True"),
        (
            "{% set n = namespace(n=0) %}{% for i in [3] %}{% set n.n = n.n + i %}{% endfor %}"
            "{{ n.n }}",
            "3",
        ),
        ("{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}", "a2b1"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('q') }}", "[q]"),
        (
            "{% for n in [1, [2]] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}",
            "12",
        ),
        ("  {% if true %}\n x\n  {% endif %}\n", " x\n"),
        ("{{ missing }}{{ tools is none }}{{ 'b' in 'abc' }}", "TrueTrue"),
        (
            "{{ 'a,b'.split(',')|join('-') }}{{ ' x '.strip() ~ 1 }}{{ 'ab'.replace('a', 'c') }}",
            "a-bx1cb",
        ),
        (
            "{{ '%s is %d' % ('x', 3) }} {{ '{} {a}'.format(1, a=2) }} {{ 'é'|upper }}",
            "x is 3 1 2 É",
        ),
        ("{{ messages|map(attribute='role')|list }}", "['user']"),
        ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
        ("{{ think }}", "yes"),
    ],
)
def test_what_published_templates_use_works(source: str, expected: str) -> None:
    assert render(source, think="yes") == expected


def test_the_date_is_today_s() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


def test_what_the_template_raises_is_in_the_error() -> None:
    with pytest.raises(TemplateError, match="the chat template failed: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ messages[0].content.x.y }}", "has no attribute 'x'"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.__init__.__globals__ }}", "unsafe"),
        ("{% include 'x' %}", "no loader"),
        ("{{ namespace(__class__=1) }}", "can't hold '__class__'"),
        ("{% set n = namespace() %}{% set n._x = 1 %}", "can't hold '_x'"),
        ("{{ dict.mro() }}", "no attribute|unsafe"),
        ("{{ (messages|attr('__class__')).x }}", "unsafe"),
    ],
)
def test_a_template_that_fails_gives_one_typed_error(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        render(source)


@pytest.mark.parametrize("source", ["{% for %}", "{{ 1 + }}", "{{ x|nosuch }}", "{{" + "(" * 5000])
def test_a_template_that_does_not_compile_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="doesn't compile"):
        ChatTemplate(source)


NS = "{% set ns = namespace(s='x' * 1000, l=[1]) %}"
TREE = NS + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
LOOP = "{% for a in range(99999) %}"
FOREVER = {
    "nested loops": LOOP + "{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a filtered loop": LOOP + "{% for b in range(99999) if b < 0 %}{% endfor %}{% endfor %}",
    "a macro that branches": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "a macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "a range of 2^60": "{{ range(2**60)|list }}",
    "a power": "{{ 9 ** 9999999 }}",
    "a tower of powers": "{{ 9 ** (9 ** 9) }}",
    "a repeated string": "{{ 'x' * 10**11 }}",
    "a repeated list": "{{ [1] * 10**11 }}",
    "a string that doubles": NS
    + "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "a sum that doubles": NS + "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "a list that doubles": NS + "{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "a tree written out": NS
    + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "a tree as JSON": NS
    + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
    "a tree as a string": NS
    + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|string|length }}",
    "a tree joined": NS
    + "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ 'x' ~ ns.l }}",
    "trees compared": TREE + TREE.replace("ns", "other") + "{{ ns.l == other.l }}",
    "a tree of tuples as a key": TREE.replace("[ns.l, ns.l]", "(ns.l, ns.l)") + "{{ {ns.l: 1} }}",
    "a tree of dictionaries": TREE.replace("[ns.l, ns.l]", "{1: ns.l, 2: ns.l}") + "{{ ns.l }}",
    "a tree of dict()": TREE.replace("[ns.l, ns.l]", "dict(a=ns.l, b=ns.l)") + "{{ ns.l }}",
    "a tree by repetition": TREE.replace("[ns.l, ns.l]", "[ns.l] * 2") + "{{ [ns.l]|sort }}",
    "a replacement that explodes": NS
    + "{% for i in range(9) %}{% set ns.s = ns.s|replace('x', ns.s) %}{% endfor %}",
    "a method that explodes": NS
    + "{% for i in range(9) %}{% set ns.s = ns.s.replace('x', ns.s) %}{% endfor %}",
    "a join that explodes": NS
    + "{% for i in range(9) %}{% set ns.s = ([ns.s] * 1000)|join(ns.s) %}{% endfor %}",
    "a method that joins": NS
    + "{% for i in range(9) %}{% set ns.s = ns.s.join([ns.s] * 1000) %}{% endfor %}",
    "a width in a method": "{{ 'x'.ljust(10**11) }}",
    "a width in a format": "{{ '{:>99999999999}'.format(1) }}",
    "a width in %": "{{ '%99999999999d' % 1 }}",
    "a width given to %": "{{ '%*d' % (10**11, 1) }}",
    "an indent": "{{ 'x\n'|indent(10**11) }}",
    "a filter that pads": "{{ 'x'|center(10**11) }}",
    "words of Latin": "{{ lipsum(n=10**9) }}",
    "a JSON indent": "{{ [1]|tojson(indent=10**11) }}",
    "output without end": NS + "{% for i in range(99999) %}{{ ns.s }}{% endfor %}",
}


@pytest.mark.parametrize("name", FOREVER)
def test_a_template_without_end_is_refused_soon(name: str) -> None:
    begun = time.thread_time()
    with pytest.raises(TemplateError):
        render(FOREVER[name], seconds=0.2)
    assert time.thread_time() - begun < 1


def test_a_long_conversation_is_no_loop() -> None:
    messages = [{"role": "user", "content": "x" * 500}] * 4000
    assert len(render(CHATML, messages)) > 2_000_000


def checkpoint(tmp_path: Path, **files: str) -> Checkpoint:
    folder = write_tiny(tmp_path / "tiny", "smollm2")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return open_checkpoint(folder)


def load(source: Checkpoint) -> str:
    template = load_template(source, load_tokenizer(source).names)
    assert template is not None
    return template.render(HELLO)


def test_a_folder_s_template_is_found_and_a_jinja_file_wins(tmp_path: Path) -> None:
    assert load(checkpoint(tmp_path)).startswith("<|im_start|>user")
    assert (
        load(checkpoint(tmp_path, chat_template__jinja="own {{ eos_token }}")) == "own <|im_end|>"
    )


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    several = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    source = checkpoint(tmp_path, tokenizer_config__json=json.dumps({"chat_template": several}))
    assert load(source) == "plain"


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, tokenizer_config__json="{}")
    assert load_template(source, {}) is None


def test_a_gguf_file_s_template_is_found() -> None:
    source = Checkpoint(
        kind="gguf",
        path=Path("x.gguf"),
        architecture="llama",
        config={},
        metadata={"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "tools"},
        entries={},
    )
    template = load_template(source, {})
    assert template is not None
    assert template.render(HELLO) == "plain"
