"""The OpenAPI document tells the truth, and nothing that it allows breaks the server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
import schemathesis.specs.openapi.checks as conformance
from fake_engine import FakeEngine
from flatwake_service.http.errors import KINDS, Code
from flatwake_service.http.schema import FIXED
from served import Served

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def described() -> Iterator[Served]:
    with Served(FakeEngine) as server:
        yield server
        server.assert_idle()


CHECKS = [
    schemathesis.checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


def complete(body: dict[str, Any]) -> None:
    """What the document can't say: the served names, and which fields need each other."""
    for name in ("model", "best_of", "min_tokens", "logit_bias", "stop_token_ids", *FIXED):
        body.pop(name, None)
    if "messages" in body and "prompt" in body:
        del body["messages"]
    for message in body.get("messages") or []:
        message["content"] = message.get("content") or "say hello."


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_no_answer_is_a_5xx_or_outside_its_schema(
    described: Served, mode: schemathesis.GenerationMode
) -> None:
    """For requests that the document allows, and for ones that it doesn't."""
    schema = schemathesis.openapi.from_url(f"{described.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 11
    positive = mode is schemathesis.GenerationMode.POSITIVE
    answered: Counter[tuple[str, int]] = Counter()
    for operation in operations:
        if mode is schemathesis.GenerationMode.NEGATIVE and operation.method != "post":
            continue

        @hypothesis.settings(
            max_examples=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def call(case: schemathesis.Case) -> None:
            if positive and isinstance(case.body, dict):
                complete(case.body)
            response = case.call_and_validate(checks=CHECKS)
            answered[case.operation.path, response.status_code] += 1

        call()
    for path in {path for path, _ in answered} - {"/v1/models/{model}"}:
        assert answered[path, 200 if positive else 400], answered


def test_every_code_has_a_kind_and_a_section() -> None:
    assert set(KINDS) == set(Code)
    sections = re.findall(r"^## `(\w+)`$", (DOCS / "errors.md").read_text(), re.MULTILINE)
    assert sections == [code.value for code in Code]


def test_every_metric_has_a_row(described: Served) -> None:
    with described.client() as client:
        text = client.get("/metrics").text
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    rows = set(re.findall(r"^\| `([\w:]+)", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    assert families == rows
