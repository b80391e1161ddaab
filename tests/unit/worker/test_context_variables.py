"""Each job runs in a fresh copy of the context that its middleware stands in."""

from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from queue_operator.harness import WorkerHarness
from queue_operator.worker import CallNext, Depends, JobContext, Worker
from queue_operator.worker.testing import run_handler, run_handler_async

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")


def plain(ctx: JobContext, payload: str = "") -> str:
    """What it finds; what it leaves must not be found by the next."""
    found = TENANT.get()
    TENANT.set(payload or "left behind")
    return found


async def coroutine(ctx: JobContext, payload: str = "") -> str:
    return plain(ctx, payload)


async def bind(ctx: JobContext, call_next: CallNext) -> Any:
    TENANT.set(f"tenant of {ctx.job_id}")
    return await call_next(ctx)


def one_by_one(connection: Any, say: Any, type_: str) -> list[bytes]:
    """The results of three jobs of which each begins when the one before has ended."""
    found = []
    for number in range(3):
        connection.send(say.assigned(say.assignment(f"{type_}-{number}", "t", type_)))
        found.append(connection.settle()[0].result)
    return found


@pytest.mark.parametrize("type_", ["plain", "coroutine"])
def test_no_job_sees_what_another_has_set(
    worker_with: Any, server: Any, run: Any, say: Any, type_: str
) -> None:
    run(worker_with(plain=plain, coroutine=coroutine))
    assert one_by_one(server.accept(), say, type_) == [b'"nobody"'] * 3


@pytest.mark.parametrize("type_", ["plain", "coroutine"])
def test_what_a_middleware_binds_is_seen_wherever_the_handler_runs(
    worker_with: Any, server: Any, run: Any, say: Any, type_: str
) -> None:
    run(worker_with(bind, plain=plain, coroutine=coroutine))
    assert one_by_one(server.accept(), say, type_) == [
        f'"tenant of {type_}-{number}"'.encode() for number in range(3)
    ]


def test_what_a_dependency_binds_is_seen_by_the_handler(worker_with: Any) -> None:
    async def tenant(ctx: JobContext) -> None:
        TENANT.set("of a dependency")

    def needs(ctx: JobContext, bound: Annotated[None, Depends(tenant)]) -> str:
        return TENANT.get()

    needs.__annotations__["bound"] = Annotated[None, Depends(tenant)]
    assert run_handler(worker_with(needs=needs), "needs") == "of a dependency"


def test_what_was_set_before_the_worker_ran_is_seen_by_all(
    worker_with: Any, server: Any, run: Any, say: Any
) -> None:
    worker = worker_with(plain=plain, coroutine=coroutine)
    serve = worker.run

    def set_and_serve() -> int:
        TENANT.set("of the program")
        ended: int = serve()
        return ended

    worker.run = set_and_serve
    run(worker)
    connection = server.accept()
    for type_ in ("plain", "coroutine"):
        assert one_by_one(connection, say, type_) == [b'"of the program"'] * 3


@pytest.mark.parametrize("type_", ["plain", "coroutine"])
async def test_the_test_kit_keeps_jobs_and_tests_apart(type_: str) -> None:
    worker = Worker()
    worker.register(type_, plain if type_ == "plain" else coroutine)
    for _ in range(2):
        assert await run_handler_async(worker, type_) == "nobody"
    assert TENANT.get() == "nobody"


@pytest.mark.parametrize("handler", [plain, coroutine])
def test_so_do_the_plain_kit_and_the_harness(handler: Any) -> None:
    worker = Worker()
    worker.register("t", handler)
    assert [run_handler(worker, "t") for _ in range(2)] == ["nobody"] * 2
    assert TENANT.get() == "nobody"
    worker.middleware(bind)
    with WorkerHarness(worker) as harness:
        jobs = [harness.submit("t") for _ in range(2)]
        harness.run_until_idle()
        assert [harness.result(job) for job in jobs] == [f"tenant of {job}" for job in jobs]
