"""A request's sampling: its own words, else the model's, else OpenAI's."""

from __future__ import annotations

from typing import Any

import pytest
from fake_text import language
from flatwake_service.engine.messages import SamplingParams
from flatwake_service.http.sampling import Limits, sampling_params
from flatwake_service.http.schema import ChatRequest
from flatwake_service.text import SamplingDefaults
from served import Served

OWN = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.05)


def params(own: SamplingDefaults = OWN, **fields: Any) -> SamplingParams:
    request = ChatRequest(messages=[], **fields)
    return sampling_params(request, -1, Limits(512, 258, (256,), 8, own))


def test_a_request_that_says_nothing_is_sampled_as_the_models_maker_says() -> None:
    found = params()
    assert found.temperature == 0.6
    assert (found.top_p, found.top_k, found.min_p) == (0.95, 20, 0.05)
    assert found.repetition_penalty == 1.05


@pytest.mark.parametrize(
    ("name", "value", "effective"),
    [
        ("temperature", 0.0, 0.0),
        ("temperature", 1.0, 1.0),
        ("top_p", 1.0, 1.0),
        ("top_k", -1, 0),
        ("top_k", 0, 0),
        ("min_p", 0.0, 0.0),
        ("repetition_penalty", 1.0, 1.0),
    ],
)
def test_a_request_that_says_one_thing_overrides_that_alone(
    name: str, value: float, effective: float
) -> None:
    found = params(**{name: value})
    assert getattr(found, name) == effective
    others = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"} - {name}
    assert all(getattr(found, other) == getattr(OWN, other) for other in others)


def test_a_model_that_says_nothing_has_openais_defaults() -> None:
    found = params(SamplingDefaults())
    assert (found.temperature, found.top_p, found.top_k, found.min_p) == (1.0, 1.0, 0, 0.0)
    assert found.repetition_penalty == 1.0


def test_a_models_top_p_of_zero_is_greedy_like_a_requests() -> None:
    assert params(SamplingDefaults(top_p=0.0)).top_k == 1
    assert params(top_p=0.0).top_k == 1


def test_null_is_the_same_as_absent_over_the_wire() -> None:
    with Served() as served:
        served.call(lambda: setattr(served.service, "language", language(OWN)))
        assert served.chat("say hello.", temperature=None, top_k=5).status_code == 200
        sampling = served.call(lambda: served.engine.submitted[-1].sampling)
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 5, 0.95)
