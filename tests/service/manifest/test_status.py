"""What servers say about themselves is read across versions."""

from flatwake_service.manifest import Phase, Reason, ServerStatus, Termination


def test_unknown_is_null_and_everything_round_trips() -> None:
    status = ServerStatus(phase=Phase.READY, reason=Reason.SERVING)
    assert ServerStatus.model_validate_json(status.model_dump_json()) == status
    assert status.model_dump()["kv_tokens"] is None


def test_a_newer_servers_words_do_not_break_a_reader() -> None:
    status = ServerStatus.model_validate(
        {"phase": "dreaming", "reason": "Invented", "model": {"colour": "red"}, "extra": 1}
    )
    assert status.phase is None
    assert status.reason is Reason.UNKNOWN


def test_a_termination_message_is_ours_or_none() -> None:
    ours = Termination.read('{"reason": "DeviceHung", "message": "device hung: 61 s"}')
    assert ours is not None
    assert ours.reason is Reason.DEVICE_HUNG
    assert Termination.read("panic: oops") is None
    assert Termination.read('{"reason"') is None
    assert Termination.read(None) is None
