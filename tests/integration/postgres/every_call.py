"""One call of every method of the Postgres store."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from queue_operator.backends.figures import Buckets, Naming
from queue_operator.backends.horizon import Horizon
from queue_operator.backends.lost_workers import Loss
from queue_operator.backends.positions import Position
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.figures import FigureStore
from queue_operator.backends.postgres.following import FollowedLog
from queue_operator.backends.postgres.webhooks import WebhookStore
from queue_operator.backends.protocol import (
    CheckpointReport,
    LogLine,
    LogReport,
    Pause,
    ProgressReport,
    SessionOrder,
    SessionRoll,
    SpawnRequest,
    StatsWindow,
    WorkerSession,
)
from queue_operator.backends.watching import SeriesWindow
from queue_operator.backends.webhooks import MessageSearch, MessageState, Told
from queue_operator.domain.errors import MessageNotFound
from queue_operator.domain.job import Demand, Job, Progress
from queue_operator.domain.lease import Held
from queue_operator.domain.ordering import Priority
from queue_operator.testing.backend import errors

Call = Callable[[PostgresBackend, str], Awaitable[object]]

TTL_S: Final = 60.0
_TOKEN: Final = "0" * 32
_SESSION: Final = WorkerSession(session_id="s", namespace="default", worker_name="w")
_PROGRESS: Final = Progress(percent=1, message="", updated_at=datetime(2026, 1, 1, tzinfo=UTC))
_REPORT: Final = ProgressReport(job_id="x", token=_TOKEN, progress=_PROGRESS)
_CHECKPOINT: Final = CheckpointReport(job_id="x", token=_TOKEN, number=1, data=b"")
_CHILD: Final = SpawnRequest(parent_id="x", token=_TOKEN, key="1", job=Job(id="", type="t"))
_LINE: Final = LogLine(number=1, at=_PROGRESS.updated_at, level="INFO", message="")
_LOG: Final = LogReport(job_id="x", token=_TOKEN, lines=(_LINE,))
_NAMING: Final = Naming(max_pairs=5, max_namespaces=1, unused_s=TTL_S)
_BUCKETS: Final = Buckets(wait=(1.0,), run=(1.0,))
_TOLD: Final = Told(id="msg_1_" + "0" * 32, claim=1, state=MessageState.DELIVERED, status=200)


def a_job(name: str, key: str = "") -> Job:
    return Job(id=name, type="t", idempotency_key=key)


async def _missing(found: Awaitable[object]) -> None:
    with suppress(MessageNotFound):
        await found


# Those of the contract, and what only this store has. Given a word that nobody else uses.
EVERY: Final[dict[str, Call]] = {
    **errors.EVERY,
    "enqueue_job": lambda b, x: b.enqueue_job(a_job(x)),
    "enqueue_jobs": lambda b, x: b.enqueue_jobs([a_job(f"{x}-{n}") for n in range(60)]),
    "submit": lambda b, x: b.submit([a_job(f"{x}-s", key=x)], atomic=False),
    "take_in": lambda b, x: b.take_in([a_job(f"{x}-t")]),
    "pending_cancels": lambda b, x: b.pending_cancels(["w"]),
    "confirm_cancels": lambda b, x: b.confirm_cancels([Held(x, _TOKEN)]),
    "mark_worker_unresponsive": lambda b, x: b.mark_worker_unresponsive(x),
    "extend_leases": lambda b, x: b.extend_leases([Held(x, _TOKEN)], lease_ttl_s=TTL_S),
    "read_events": lambda b, x: b.read_events(),
    "eligible_for": lambda b, x: b.eligible_for([Demand(assignee_id=x, limit=1)]),
    "queue_depth": lambda b, x: b.queue_depth(),
    "database_figures": lambda b, x: b.database_figures(),
    "window_stats": lambda b, x: b.window_stats(StatsWindow()),
    "stats_series": lambda b, x: b.stats_series(SeriesWindow()),
    "oldest_due": lambda b, x: b.oldest_due(),
    "roll_up": lambda b, x: b.roll_up(),
    "usage_of": lambda b, x: b.usage_of(["default"]),
    "pause": lambda b, x: b.pause(Pause(namespace="default", type=x, since=_PROGRESS.updated_at)),
    "resume": lambda b, x: b.resume("default", x),
    "pauses": lambda b, x: b.pauses("default"),
    "set_suspended": lambda b, x: b.set_suspended({("default", f"{x}-before"): True}),
    "place_of": lambda b, x: b.place_of(f"{x}-before"),
    "take_tokens": lambda b, x: b.take_tokens(x, 1.0, rate_per_s=1.0, burst=1.0),
    "return_tokens": lambda b, x: b.return_tokens(x, 1.0, rate_per_s=1.0, burst=1.0),
    "taken_keys": lambda b, x: b.taken_keys([("default", x)]),
    "taken_in": lambda b, x: b.taken_in([x]),
    "named_jobs": lambda b, x: b.named_jobs([("default", x)]),
    "shown_jobs": lambda b, x: b.shown_jobs([("default", x)]),
    "set_priorities": lambda b, x: b.set_priorities({("default", x): Priority.HIGH}),
    "queue_uid": lambda b, x: b.queue_uid(),
    "reset_running_jobs": lambda b, x: b.reset_running_jobs(namespace="nobody's"),
    "cleanup_expired_jobs": lambda b, x: b.cleanup_expired_jobs(TTL_S),
    "prune_events": lambda b, x: b.prune_events(TTL_S),
    "detach": lambda b, x: b.detach([x]),
    "attached": lambda b, x: b.attached("c"),
    "pending_mirrors": lambda b, x: b.pending_mirrors(),
    "acknowledge_mirrors": lambda b, x: b.acknowledge_mirrors([1]),
    "open_session": lambda b, x: b.open_session(_SESSION),
    "touch_sessions": lambda b, x: b.touch_sessions([_SESSION]),
    "keep_sessions": lambda b, x: b.keep_sessions(SessionRoll.of("r", [_SESSION])),
    "session_news": lambda b, x: b.session_news([_SESSION]),
    "order_session": lambda b, x: b.order_session(x, SessionOrder()),
    "close_sessions": lambda b, x: b.close_sessions([x]),
    "list_sessions": lambda b, x: b.list_sessions(),
    "lose_sessions": lambda b, x: b.lose_sessions([Loss(session_id=x)]),
    "lost_workers": lambda b, x: b.lost_workers("t"),
    "record_progress": lambda b, x: b.record_progress([_REPORT]),
    "store_checkpoints": lambda b, x: b.store_checkpoints([_CHECKPOINT]),
    "spawn": lambda b, x: b.spawn([_CHILD]),
    "append_logs": lambda b, x: b.append_logs([_LOG]),
    "job_log": lambda b, x: b.job_log(x),
    "figures.lead": lambda b, x: b.figures.lead(x, TTL_S),
    "figures.resign": lambda b, x: b.figures.resign(x),
    "figures.stock": lambda b, x: b.figures.stock(_NAMING),
    "figures.names": lambda b, x: b.figures.names(),
    "figures.count": lambda b, x: b.figures.count(x, _NAMING, _BUCKETS),
    "figures.lag_s": lambda b, x: b.figures.lag_s(),
    "followed.mark": lambda b, x: b.followed.mark(),
    "followed.kept": lambda b, x: b.followed.kept([Position("", 0, Horizon(0))]),
    "followed.look": lambda b, x: b.followed.look([("default", f"{x}-before")]),
    "followed.step": lambda b, x: b.followed.step(Horizon(0), None, 0, bool, [1], 1000),
    "webhooks.claim": lambda b, x: b.webhooks.claim(x, limit=1, per_receiver=1, lease_s=TTL_S),
    "webhooks.settle": lambda b, x: b.webhooks.settle([_TOLD]),
    "webhooks.get": lambda b, x: _missing(b.webhooks.get(_TOLD.id, namespace="default")),
    "webhooks.search": lambda b, x: b.webhooks.search(MessageSearch()),
    "webhooks.redeliver": lambda b, x: b.webhooks.redeliver("default", ids=[_TOLD.id]),
    "webhooks.purge": lambda b, x: b.webhooks.purge("default", ids=[_TOLD.id]),
    "webhooks.count": lambda b, x: b.webhooks.count("default", ids=[_TOLD.id]),
    "webhooks.standing": lambda b, x: b.webhooks.standing("default"),
    "webhooks.stock": lambda b, x: b.webhooks.stock(),
    "webhooks.prune": lambda b, x: b.webhooks.prune(delivered_s=TTL_S, failed_s=TTL_S, limit=1),
}
# These do not ask the server anything that they wait for, or are a test of their own.
APART: Final = frozenset(
    {"open", "close", "listen", "hears_itself", "pool_usage", "on_wait", "figures", "followed"}
)


def methods() -> set[str]:
    ours = _public(PostgresBackend) - APART
    ours |= {f"figures.{name}" for name in _public(FigureStore)}
    ours |= {f"followed.{name}" for name in _public(FollowedLog)}
    return ours | {f"webhooks.{name}" for name in _public(WebhookStore)}


def _public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}
