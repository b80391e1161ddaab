"""What an exception means, whatever it is wrapped in and made of."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from queue_operator.domain.outcome import ErrorCategory
from queue_operator.worker import Cancelled, JobContext, PermanentError, Retry
from queue_operator.worker.runner import Failed, Stopped, ending_of

PERMANENT, TEMPORARY = ErrorCategory.PERMANENT, ErrorCategory.TEMPORARY


def failed(error: BaseException) -> Failed:
    try:
        raise error
    except BaseException as caught:
        ending = ending_of(caught)
    assert isinstance(ending, Failed)
    return ending


def never(name: str = "NO_SUCH_USER") -> PermanentError:
    return PermanentError(f"{name} is gone", code=name, context={"user": 7})


def test_a_group_whose_leaves_agree_means_what_they_mean() -> None:
    group = ExceptionGroup("tasks", [never(), ExceptionGroup("more", [never("B")])])
    error = failed(group).error
    assert (error.category, error.code, error.message) == (
        PERMANENT,
        "NO_SUCH_USER",
        "NO_SUCH_USER is gone",
    )
    assert error.context == {"user": "7"}
    # The trace is that of all.
    assert "B is gone" in error.stack_trace
    error = failed(ExceptionGroup("tasks", [KeyError("a"), ValueError("b")])).error
    assert (error.category, error.code, error.message) == (TEMPORARY, "KeyError", "'a'")


def test_a_group_whose_leaves_disagree_may_be_tried_again() -> None:
    error = failed(ExceptionGroup("tasks", [never(), TimeoutError("too slow")])).error
    assert (error.category, error.code, error.message) == (TEMPORARY, "TimeoutError", "too slow")


def test_a_group_waits_as_long_as_the_longest_of_its_leaves_asks() -> None:
    ending = failed(ExceptionGroup("tasks", [Retry(after=7), Retry("later", after=60), OSError()]))
    assert (ending.retry_after_s, ending.error.code) == (60.0, "RETRY")


def test_a_group_of_nothing_but_cancellations_has_stopped() -> None:
    stopped = ExceptionGroup("tasks", [Cancelled(), Cancelled()])
    assert ending_of(stopped) == Stopped()
    assert ending_of(BaseExceptionGroup("tasks", [asyncio.CancelledError()])) == Stopped()
    assert failed(ExceptionGroup("tasks", [Cancelled(), never()])).error.category is PERMANENT
    mixed = BaseExceptionGroup("tasks", [asyncio.CancelledError(), never()])
    assert failed(mixed).error.code == "NO_SUCH_USER"


def test_a_task_group_in_a_worker(worker_with: Any, server: Any, run: Any, say: Any) -> None:
    async def charge(ctx: JobContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())
            tasks.create_task(refuse())

    async def refuse() -> None:
        raise never()

    run(worker_with(charge=charge))
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t", "charge")))
    (outcome,) = connection.settle()
    assert outcome.error.code == "NO_SUCH_USER"
    assert outcome.error.message == "NO_SUCH_USER is gone"


class Evil:
    """Raises wherever it is asked for something."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")


class EvilText(str):
    def __str__(self) -> str:
        raise RuntimeError("no")

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        raise RuntimeError("no")


class Unmade(PermanentError):
    def __init__(self) -> None:
        """Forgets what it is made of."""


def spoiled(error: Any, **members: Any) -> Any:
    for name, value in members.items():
        setattr(error, name, value)
    return error


NO_TEXT = "an Evil whose text cannot be had: RuntimeError"


@pytest.mark.parametrize(
    ("make", "category", "code"),
    [
        (lambda: PermanentError("x", code=Evil()), PERMANENT, NO_TEXT),  # type: ignore[arg-type]
        (lambda: PermanentError(code=Evil()), PERMANENT, NO_TEXT),  # type: ignore[arg-type]
        (lambda: Retry("x", code=Evil()), TEMPORARY, NO_TEXT),  # type: ignore[arg-type]
        (lambda: PermanentError("x", code=EvilText("C")), PERMANENT, None),
        (lambda: spoiled(PermanentError("x"), code=Evil()), PERMANENT, NO_TEXT),
        (lambda: spoiled(PermanentError("x"), context={"a": Evil()}), PERMANENT, "PERMANENT"),
        (lambda: spoiled(PermanentError("x"), context=7), TEMPORARY, "PermanentError"),
        (lambda: spoiled(Retry("x"), after_s=Evil()), TEMPORARY, "RETRY"),
        (lambda: spoiled(Retry("x"), after_s=-1), TEMPORARY, "RETRY"),
        (lambda: PermanentError("x", context={"a": Evil()}), PERMANENT, "PERMANENT"),
        (Unmade, PERMANENT, "PERMANENT"),
        (lambda: ValueError(Evil()), TEMPORARY, "ValueError"),
    ],
)
def test_an_exception_of_odd_parts_is_one_failed_attempt_and_the_worker_goes_on(
    worker_with: Any,
    server: Any,
    run: Any,
    say: Any,
    make: Callable[[], Exception],
    category: ErrorCategory,
    code: str | None,
) -> None:
    def fails(ctx: JobContext) -> None:
        raise make()

    run(worker_with(fails=fails, works=lambda ctx: 1))
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t", "fails")))
    (outcome,) = connection.settle()
    ending = ending_of(make())
    assert isinstance(ending, Failed)
    assert ending.error.category is category
    if code is not None:
        assert outcome.error.code == code
    connection.send(say.assigned(say.assignment("b", "t", "works")))
    assert connection.settle()[0].result == b"1"
