"""Each promise is broken on purpose, and the check that guards it must say so."""

from __future__ import annotations

import pytest
from flatwake_loadtest import bounds, correctness, counters, figures, promises
from flatwake_loadtest.answer import Answer
from flatwake_loadtest.checks import Check, State
from flatwake_loadtest.memory import Sample
from flatwake_loadtest.words import codeword
from played import answer, metrics, played, record

BOUNDS = bounds.load()


def state(checks: list[Check], about: str) -> Check:
    (found,) = [each for each in checks if about in each.about]
    return found


def counted(answers: list[Answer], after: str, seconds: float = 0.05) -> list[Check]:
    wave = played("steady", answers, rests=(metrics(), after), rest_seconds=seconds)
    return counters.checks(wave, BOUNDS)


FOUR = [answer() for _ in range(3)] + [answer("stop")]


def test_equal_counts_hold() -> None:
    checks = counted(FOUR, metrics({"length": 3, "stop": 1}, generated=40, prompt=80))
    assert [each.state for each in checks] == [State.HOLDS] * 3


@pytest.mark.parametrize(
    ("after", "about", "word"),
    [
        (metrics({"length": 4, "stop": 1}, 40, 80), "requests", "length: client 3, server 4"),
        (metrics({"length": 3}, 40, 80), "requests", "stop: client 1, server 0"),
        (metrics({"length": 3, "stop": 1}, 41, 80), "tokens", "usage says 40 tokens"),
        (metrics({"length": 3, "stop": 1}, 40, 81), "tokens", "prompt tokens"),
        (
            metrics({"length": 3, "stop": 1}, 40, 80).replace("discarded_tokens_total 0", "x 0")
            + "flatwake_discarded_tokens_total 2\n",
            "tokens",
            "generated 40 ≠ reported 40 + 2",
        ),
    ],
    ids=["one too many", "one lost", "tokens", "prompt", "discarded"],
)
def test_a_count_that_is_off_by_one_is_found(after: str, about: str, word: str) -> None:
    found = state(counted(FOUR, after), f"{about} are counted")
    assert found.state is State.FAILS
    assert word in found.detail


def test_discarded_tokens_are_allowed_when_they_add_up() -> None:
    after = metrics({"length": 3, "stop": 1}, generated=43, prompt=80, discarded=3)
    assert state(counted(FOUR, after), "tokens").state is State.HOLDS


def test_what_isnt_given_back_is_found() -> None:
    after = metrics({"length": 3, "stop": 1}, 40, 80)
    kept = after.replace('kv_blocks{state="used"} 0', 'kv_blocks{state="used"} 3')
    found = state(counted(FOUR, kept), "given back")
    assert found.state is State.FAILS
    assert "kv_blocks still 3" in found.detail
    slow = state(counted(FOUR, after, seconds=5.0), "given back")
    assert slow.state is State.FAILS
    assert "5.00 s" in slow.detail


def test_users_who_leave_blur_the_count_only_as_far_as_they_can() -> None:
    answers = [*FOUR, answer("cancelled", tokens=3), answer("cancelled", tokens=0)]
    for cancelled, expected in ((1, State.HOLDS), (2, State.HOLDS), (0, State.FAILS)):
        after = metrics({"length": 3, "stop": 1, "cancelled": cancelled}, generated=50, prompt=99)
        assert state(counted(answers, after), "requests").state is expected
    less = metrics({"length": 3, "stop": 1, "cancelled": 2}, generated=30, prompt=99)
    assert state(counted(answers, less), "tokens").state is State.FAILS


def together(texts: dict[int, str], alone: dict[int, str], exact: bool = True) -> list[Check]:
    answers = [answer(tag=f"alone:{index}", text=text) for index, text in alone.items()]
    answers += [answer(tag=f"together:{index}", text=text) for index, text in texts.items()]
    answers.append(answer(tag="counted:0", exact=exact))
    return correctness.checks(played("correctness", answers, requests=len(alone)), seed=1)


WORDS = {index: f"{codeword(1, index)} and more" for index in range(3)}


def test_answers_that_are_their_own_hold() -> None:
    checks = together(WORDS, WORDS)
    assert all(each.state is State.HOLDS for each in checks)
    assert "3 of 3 say their own" in state(checks, "crosses").detail


def test_an_answer_that_changes_under_load_is_found() -> None:
    found = state(together({**WORDS, 1: WORDS[1] + "!"}, WORDS), "alone and under load")
    assert found.state is State.FAILS
    assert f"prompt 1 differs from character {len(WORDS[1])}" in found.detail


def test_another_streams_codeword_is_found() -> None:
    found = state(together({**WORDS, 2: WORDS[0]}, WORDS), "crosses")
    assert found.state is State.FAILS
    assert "the answer to 2 holds the codeword of 0" in found.detail


def test_tokens_in_the_stream_are_compared_with_usage() -> None:
    short = [answer(tag="counted:0", tokens=9, usage=10, exact=True)]
    checks = correctness.checks(played("correctness", short), seed=1)
    assert state(checks, "usage counts").state is State.FAILS
    assert state(together(WORDS, WORDS, exact=False), "usage counts").state is State.NOT_SHOWN


@pytest.mark.parametrize("outcome", ["broken", "error", "timeout", "unreachable", "rejected"])
def test_every_other_ending_is_a_failure(outcome: str) -> None:
    checks = correctness.checks(played("steady", [answer(), answer(outcome)]), seed=1)
    assert state(checks, "ends as it should").state is State.FAILS


def burst(answers: list[Answer], users: int) -> Check:
    checks = correctness.checks(played("burst", answers, users=users), seed=1)
    return state(checks, "full queue")


def test_a_full_queue_is_right_when_all_are_served_in_the_end() -> None:
    refused = answer("rejected", 0, status=429, retry_after="2")
    assert burst([refused, *FOUR], 4).state is State.HOLDS
    assert burst(FOUR, 4).state is State.NOT_SHOWN
    assert burst([refused, *FOUR], 5).state is State.FAILS
    vague = answer("rejected", 0, status=429, retry_after="soon")
    assert "soon" in burst([vague, *FOUR], 4).detail
    assert burst([answer("rejected", 0, status=429), *FOUR], 4).state is State.FAILS


def agreed(
    first: float, gap: float, lag: float = 0.0, answers: list[Answer] | None = None
) -> list[Check]:
    after = metrics(
        time_to_first_token_seconds_sum=first * 4,
        time_to_first_token_seconds_count=4,
        inter_token_seconds_sum=gap * 36,
        inter_token_seconds_count=36,
    )
    wave = played("steady", answers or FOUR, rests=(metrics(), after), lag=lag)
    return promises.agreement(record(wave), BOUNDS)


def test_histograms_that_say_what_the_client_saw_hold() -> None:
    assert all(each.state is State.HOLDS for each in agreed(0.0990, 0.0098))
    assert len(agreed(0.1, 0.01)) == 2


def test_histograms_that_say_something_else_are_found() -> None:
    assert state(agreed(0.1, 0.0094), "mean gap").state is State.FAILS
    assert state(agreed(0.094, 0.01), "first token").state is State.FAILS


def test_a_starved_client_judges_nobody() -> None:
    found = state(agreed(0.05, 0.01, lag=0.002), "first token")
    assert found.state is State.NOT_SHOWN
    assert not found.required
    assert "2.0 ms late" in found.detail


def test_what_a_client_was_late_itself_is_taken_off_and_nothing_more() -> None:
    # It read its first tokens 20 ms after they had come, and its last ones 38 ms after.
    late = [answer(late=(0.02, 0.038)) for _ in range(4)]
    assert all(each.state is State.HOLDS for each in agreed(0.08, 0.008, answers=late))
    for about in ("mean gap", "first token"):
        assert state(agreed(0.1, 0.01, answers=late), about).state is State.FAILS


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_tenth_of_disagreement_is_called_however_late_a_client_was(share: float) -> None:
    late = [answer(late=(0.02, 0.038)) for _ in range(4)]
    for given, lag in ((late, 0.002), (None, 0.0)):
        first, gap = (0.08, 0.008) if given else (0.1, 0.01)
        checks = agreed(first * share, gap * share, lag=lag, answers=given)
        assert [each.state for each in checks] == [State.FAILS] * 2


def test_a_client_that_sends_late_judges_no_first_token_within_its_lateness() -> None:
    late = [answer(late=(0.02, 0.038)) for _ in range(4)]
    checks = agreed(0.072, 0.0072, lag=0.005, answers=late)
    assert state(checks, "first token").state is State.NOT_SHOWN
    assert state(checks, "mean gap").state is State.FAILS


def doubtful(doubt: float) -> list[Answer]:
    """First tokens between 80 ms, less the doubt, and 80 ms; mean gaps from 8 ms up."""
    return [answer(late=(0.02, 0.038), doubt=doubt) for _ in range(4)]


def test_first_tokens_that_were_read_with_the_next_ones_give_a_range() -> None:
    # A gap of 8 to 8.2 ms is one of 8.1, whichever it was; one of 8 to 12.4 may be one of 10.
    narrow, wide = doubtful(0.0018), doubtful(0.04)
    assert [each.state for each in agreed(0.079, 0.0081, answers=narrow)] == [State.HOLDS] * 2
    checks = agreed(0.06, 0.010, answers=wide)
    assert [each.state for each in checks] == [State.NOT_SHOWN] * 2
    assert not any(each.required for each in checks)
    assert "client 8.00 to 12.44 ms, server 10.00 ms" in state(checks, "mean gap").detail


@pytest.mark.parametrize(("first", "gap"), [(0.036, 0.0075), (0.086, 0.0132)])
def test_histograms_outside_of_the_range_are_found(first: float, gap: float) -> None:
    checks = agreed(first, gap, answers=doubtful(0.04))
    assert [each.state for each in checks] == [State.FAILS] * 2


def test_one_answer_whose_lateness_is_unknown_leaves_the_wave_as_it_was_read() -> None:
    mixed = [answer(late=(0.02, 0.038)) for _ in range(3)] + [answer()]
    assert all(each.state is State.HOLDS for each in agreed(0.1, 0.01, answers=mixed))


def climb(speeds: list[float], scatter: float) -> Check:
    steps = [
        {"users": index + 1, "tokens_per_second": speed, "standard_error": scatter}
        for index, speed in enumerate(speeds)
    ]
    wave = figures.of(played("rising", FOUR))
    wave.more = {"steps": steps}
    return promises.rising(wave, BOUNDS)


def test_aggregate_speed_may_not_fall_when_a_user_joins() -> None:
    assert climb([100, 180, 240, 239], 1.0).state is State.HOLDS
    fell = climb([100, 180, 150, 260], 1.0)
    assert fell.state is State.FAILS
    assert "2 → 3 users: 180 → 150" in fell.detail
    assert climb([100, 180, 150, 260], 20.0).state is State.HOLDS


def shown(metrics_says: float, kernel_says: float) -> Check:
    values = {("engine", "rss"): metrics_says, ("engine", "rss in /proc"): kernel_says}
    (found,) = promises.honesty([Sample(0.0, 0.0, values)], BOUNDS)
    return found


def test_memory_gauges_that_hide_something_are_found() -> None:
    assert shown(200e6, 201e6).state is State.HOLDS
    assert shown(200e6, 230e6).state is State.FAILS
    assert promises.honesty([Sample(0.0, 0.0, {("engine", "rss"): 1.0})], BOUNDS) == []


@pytest.mark.parametrize(("requests", "required"), [(400, True), (60, False)])
def test_memory_that_nobody_saw_is_not_shown_to_be_flat(requests: int, required: bool) -> None:
    wave = played("endurance", FOUR, requests=requests)
    (found,) = promises.unseen(record(wave), [], BOUNDS)
    assert found.state is State.NOT_SHOWN
    assert found.required is required
