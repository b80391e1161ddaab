"""Real processes, a real Postgres, a real API server, and everything that can strike them; then the
proof that no promise was broken.

QUEUE_OPERATOR_CHAOS_SEED and QUEUE_OPERATOR_CHAOS_SECONDS replay a run.
"""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from tests.chaos.apart import alone, disturbed
from tests.chaos.bounds import late
from tests.chaos.clients import Client
from tests.chaos.doors import NAMESPACE, Door, GrpcDoor, RestDoor
from tests.chaos.faults import Striker
from tests.chaos.plan import Fault, plan
from tests.chaos.resources import ResourceDoor, in_the_end, untold
from tests.chaos.stage import Stage, staged
from tests.chaos.telling import Tell, surprises
from tests.chaos.troupe import WORKERS

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.devcluster import ClusterInfo
from queue_operator.testing.history import (
    History,
    Kind,
    Log,
    Summary,
    check,
    read_logs,
    read_store,
    summarise,
    takeovers,
)

FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
SECONDS: Final = float(os.environ.get("QUEUE_OPERATOR_CHAOS_SECONDS", "300" if FULL else "60"))
SEED: Final = int(os.environ.get("QUEUE_OPERATOR_CHAOS_SEED", "1"))
CLIENTS: Final = 5
JOBS_PER_S: Final = 2.5
QUIET_S: Final = 180.0
"""Not how soon all has ended is asked, but whether it does; however busy the machine is."""
_SHOWN: Final = 5


async def test_no_promise_is_broken_whatever_strikes(tell: Tell, cluster: ClusterInfo) -> None:
    folder = Path(tempfile.mkdtemp(prefix="queue-operator-chaos-"))
    tell(f"seed {SEED}, {SECONDS:g} s of faults, logs in {folder}")
    async with staged(folder, cluster) as stage:
        await storm(stage, tell)
        history, wrong = await ended(stage, tell)
    wrong += [str(violation) for violation in check(history)]
    wrong += late(history) + disturbed(history) + surprises(folder)
    summary = summarise(history)
    tell(shown(summary, history))
    assert summary.adds_up
    (folder / "broken.txt").write_text("\n".join(wrong))
    text = "\n".join(wrong[:_SHOWN])
    assert not wrong, f"seed {SEED}: {len(wrong)} broken promises, logs in {folder}\n{text}"
    assert len(alone(history)) > 1
    assert struck(history) == {fault.name for fault in Fault}
    # Where nobody resumed, spawned or logged, that nothing was found says nothing.
    assert min(resumed(history), summary.children, logged(history)) > SECONDS / 6
    assert min(len(told(history)), repeated(history)) > SECONDS / 6
    assert summary.completed > SECONDS
    shutil.rmtree(folder)


async def storm(stage: Stage, tell: Tell) -> None:
    """Clients that ask, and strikes that fall, for the time of the run."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            log = Log(f"client{number}", stage.folder / f"client{number}.jsonl")
            door = await door_of(stage, number, log)
            callbacks = stage.callbacks
            client = Client(f"client{number}", door, log, SEED, JOBS_PER_S, callbacks)
            group.create_task(client.run(stop))
        striker = Striker(stage, Log("chaos", stage.folder / "chaos.jsonl"), tell)
        await striker.carry_out(plan(SEED, SECONDS), SECONDS)
        stop.set()


async def door_of(stage: Stage, number: int, log: Log) -> Door:
    """The last client uses custom resources, of the others every second one gRPC."""
    if number == CLIENTS - 1:
        return await ResourceDoor(stage.api.kubectl.kubeconfig, log).open()
    if number % 2:
        return GrpcDoor(stage.grpc_line.port, log)
    return RestDoor(stage.rest_line.port, log)


async def ended(stage: Stage, tell: Tell) -> tuple[History, list[str]]:
    """The whole history, once everything has had its time to end; and what did not end well."""
    tell("no more faults; waiting for the last jobs")
    await stage.until(lambda: stage.unfinished() == 0, QUIET_S)
    tell("waiting for the last messages")
    await stage.until(lambda: stage.untold() == 0, QUIET_S)
    tell("waiting for the last slots")
    await stage.until(lambda: slots_are_free(stage), QUIET_S)
    tell("waiting for the last statuses")
    objects = await in_the_end(stage.api.kubectl, QUIET_S)
    tell("ending the workers and the operators")
    wrong = await stage.end()
    tell("reading what everybody saw")
    records = await asyncio.to_thread(read_logs, stage.folder.glob("*.jsonl"))
    speakers = {record.job_id for record in records if record.kind is Kind.LINE_SENT}
    store = await PostgresBackend.open(stage.postgres.dsn)
    try:
        jobs = await read_store(store, namespace=NAMESPACE, logged=speakers)
    finally:
        await store.close()
    history = History(records, jobs)
    return history, [*wrong, *untold(objects, history)]


def slots_are_free(stage: Stage) -> bool:
    """As the operators say, which are asked once more; the last answers count."""
    stage.ask_for_usage()
    found = read_logs(stage.folder.glob("operator*.jsonl"))
    last = {r.assignee_id: r.said["busy"] for r in found if r.kind is Kind.STREAM_USAGE}
    return len(last) >= WORKERS and not any(last.values())


def resumed(history: History) -> int:
    return sum(bool(one.said.get("checkpoint")) for one in history.of(Kind.HANDLER_STARTED))


def logged(history: History) -> int:
    return sum(len(log.lines) for stored in history.jobs.values() for log in stored.logs)


def told(history: History) -> Counter[object]:
    """How often receivers have read each message."""
    return Counter(record.said["id"] for record in history.of(Kind.MESSAGE_READ))


def repeated(history: History) -> int:
    return sum(times > 1 for times in told(history).values())


def struck(history: History) -> set[object]:
    return {record.said["fault"] for record in history.of(Kind.FAULT)}


def shown(summary: Summary, history: History) -> str:
    table = Table("", "count", title=f"chaos, seed {SEED}, {SECONDS:g} s of faults")
    for name, value in summary.lines():
        table.add_row(name, value)
    taken = takeovers(history)
    waits = [one.waited_s for one in taken if one.waited_s is not None]
    longest = f"{max(waits):.2f}" if waits else "none waited"
    table.add_row("jobs of killed workers that ran elsewhere", str(len(waits)))
    table.add_row("  the longest wait of them, seconds", longest)
    table.add_row("  that ended instead", str(sum(one.ended for one in taken)))
    table.add_row("handlers that started from a checkpoint", str(resumed(history)))
    table.add_row("log lines that are stored", str(logged(history)))
    table.add_row("messages that receivers have read", str(len(told(history))))
    table.add_row("  more than once", str(repeated(history)))
    strikes = Counter(str(record.said["fault"]) for record in history.of(Kind.FAULT))
    for fault in Fault:
        table.add_row(f"fault: {fault}", str(strikes[fault.name]))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table)
    return "\n" + captured.get()
