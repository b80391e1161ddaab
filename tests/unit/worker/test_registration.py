"""What a registration answers, and what it takes."""

from datetime import timedelta
from typing import Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.worker import InvalidHandler, JobContext, RegistrationStatus, Retry, Worker


def nothing(ctx: JobContext) -> None: ...


@proves(
    "external-api.RegistrationResult.rule.1",
    "external-api.RegistrationResult.rule.2",
    "external-api.RegistrationResult.rule.3",
    "external-api.RegistrationResult.expect.1",
)
def test_the_decorator_leaves_its_result_with_the_worker() -> None:
    worker = Worker()

    @worker.handler("a")
    def first(ctx: JobContext) -> None: ...

    assert first.__name__ == "first"
    result = worker.registrations["a"]
    assert (result.type, result.status) == ("a", RegistrationStatus.REGISTERED)
    assert (result.previous, result.reason) == (False, "")
    worker.handler("a")(nothing)
    assert worker.registrations["a"].status is RegistrationStatus.REPLACED
    assert worker.registrations["a"].previous


@proves("external-api.RegistrationResult.rule.2", "external-api.RegistrationResult.expect.1")
def test_an_invalid_registration_raises_is_remembered_and_changes_nothing() -> None:
    worker = Worker()
    worker.handler("a", timeout=3)(nothing)
    with pytest.raises(InvalidHandler, match="timeout"):
        worker.handler("a", timeout=0)(nothing)
    result = worker.registrations["a"]
    assert (result.status, result.previous) == (RegistrationStatus.INVALID, True)
    assert "timeout" in result.reason
    spec = worker.registry.get("a")
    assert spec is not None
    assert spec.timeout_s == 3
    assert worker.register("b", None) == worker.registrations["b"]  # type: ignore[arg-type]
    assert worker.registrations["b"].status is RegistrationStatus.INVALID
    assert not worker.registrations["b"].previous


def first(ctx: JobContext) -> None: ...
def second(ctx: JobContext) -> None: ...


@pytest.mark.parametrize("register", ["handler", "register"])
def test_a_second_handler_of_a_type_is_told_with_both_names(
    caplog: pytest.LogCaptureFixture, register: str
) -> None:
    worker = Worker()
    worker.register("a", first)
    worker.register("b", second)
    assert caplog.records == []
    if register == "handler":
        worker.handler("a")(second)
    else:
        worker.register("a", second)
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    told = warning.getMessage()
    assert told.startswith("the handler of type 'a' is now tests.unit.worker.test_registration.sec")
    assert "test_registration.second (" in told
    assert "no longer tests.unit.worker.test_registration.first (" in told
    assert f"{__file__}:{first.__code__.co_firstlineno}" in told


def test_the_same_handler_again_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    for concurrency in (1, 2):
        worker.register("a", first, concurrency=concurrency)
    assert caplog.records == []


def test_a_type_that_is_no_text_is_invalid_too() -> None:
    worker = Worker()
    result = worker.register(["a"], nothing)  # type: ignore[arg-type]
    assert (result.type, result.status) == ("['a']", RegistrationStatus.INVALID)


@proves("external-api.HandlerRegistration.rule.3", "external-api.Time.rule.2")
@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        (timedelta(minutes=2), 120),
        ("PT5M", 300),
        ("P1DT12H", 129_600),
        ("PT0.25S", 0.25),
        ("300", 300),
        ("1h30m", 5400),
    ],
)
def test_a_timeout_is_seconds_a_timedelta_or_text(given: Any, seconds: float) -> None:
    worker = Worker()
    worker.handler("a", timeout=given)(nothing)
    spec = worker.registry.get("a")
    assert spec is not None
    assert spec.timeout_s == seconds
    assert Retry(after=given).after_s == seconds


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (0, "must be more than 0 seconds"),
        (-1, "must not be negative"),
        ("PT0S", "must be more than 0 seconds"),
        ("-PT5M", "must not be negative"),
        ("00:05", "'00:05' is no duration"),
        ("", "'' is no duration"),
        (True, "must be a duration"),
        ([], "must be a duration"),
        ("P1M", "which have no fixed length: write P30D for thirty days"),
        ("P36501D", "at most 100 years"),
        (float("nan"), "must be a duration"),
    ],
)
@proves("external-api.HandlerRegistration.rule.3")
def test_no_other_timeout_is_taken(given: Any, reason: str) -> None:
    result = Worker().register("a", nothing, timeout=given)
    assert result.status is RegistrationStatus.INVALID
    assert reason in result.reason


def test_where_a_handler_may_run() -> None:
    async def on_loop(ctx: JobContext) -> None: ...

    worker = Worker()
    assert worker.register("a", on_loop, runs_in="loop").status is RegistrationStatus.REGISTERED
    assert worker.register("a", nothing, runs_in="thread").status is RegistrationStatus.REPLACED
    wrong = worker.register("a", on_loop, runs_in="process")
    assert "a coroutine function runs in 'loop', not 'process'" in wrong.reason
    wrong = worker.register("a", nothing, runs_in="loop")
    assert "a plain function runs in 'thread' or 'process', not 'loop'" in wrong.reason
    wrong = worker.register("a", lambda ctx: None, runs_in="process")
    assert "at the top of a module" in wrong.reason


@pytest.mark.parametrize("type_", ["", "x" * 256, None, 7, "\x00"])
@proves("external-api.HandlerRegistration.rule.1")
def test_a_type_that_cannot_be_one_is_refused_by_name(type_: Any) -> None:
    assert Worker().register("x" * 255, nothing).status is RegistrationStatus.REGISTERED
    result = Worker().register(type_, nothing)
    assert result.status is RegistrationStatus.INVALID
    assert result.reason.startswith("type: ")
