"""What each figure is compared with."""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from tests.e2e.observer import NAMESPACE, Observer
from tests.e2e.sources import ApiRequests, Sources, since_s
from tests.unit.charts.rendering import ROOT

from queue_operator import __version__


@dataclass(frozen=True)
class World:
    """What was done, who watched, and who else knows.

    Attributes:
        opened: when a transaction began that is still open, by the clock of this machine.
        rest, grpc: so many calls came without a token.
        rest_before: so many came before.
        asked_before: requests that the API server had counted when the observer began.

    """

    observer: Observer
    sources: Sources
    opened: float
    rest: int
    grpc: int
    rest_before: float
    asked_before: ApiRequests

    def asked_since(self, **labels: str) -> float:
        """Requests with these labels that the API server has had since the observer began."""
        now = self.sources.api_requests()
        return now.count(**labels) - self.asked_before.count(**labels)


@dataclass(frozen=True)
class Check:
    """One comparison, and the metrics that it vouches for."""

    metrics: Sequence[str]
    compare: Callable[[World], None]


def near(found: float, expected: float, *, share: float = 0.0, by: float = 0.0) -> None:
    assert found == pytest.approx(expected, rel=share, abs=by or 1e-9), (found, expected)


def ever(counter: str) -> str:
    """What the counter reached in each process, also those that are gone."""
    return f"max_over_time({counter}[1h])"


def _counters(world: World) -> None:
    """All that is counted from the log, as the history of the jobs tells it."""
    asked = {
        "queueoperator_jobs_submitted_total": ("namespace", "type"),
        "queueoperator_job_attempts_total": ("namespace", "type", "outcome", "error_class"),
        "queueoperator_jobs_finished_total": ("namespace", "type", "state"),
        "queueoperator_job_wait_seconds_count": ("namespace", "type"),
        "queueoperator_job_run_seconds_count": ("namespace", "type"),
    }
    found: Counter[tuple[str, ...]] = Counter()
    for name, labels in asked.items():
        by = ", ".join(labels)
        demo = f'{name}{{namespace="{NAMESPACE}"}}'
        for series, value in world.observer.query(f"sum by ({by}) ({ever(demo)})"):
            found[name, *(series.get(label, "") for label in labels)] += int(value)
    history = world.sources.history()
    expected = Counter({key: n for key, n in history.items() if key[1] == NAMESPACE and n})
    assert expected.total() > 2000
    assert +found == expected, (found - expected, expected - found)


def _jobs(world: World) -> None:
    found = world.observer.by("state", "sum by (state) (queueoperator_jobs) > 0")
    expected = world.sources.rows(
        "SELECT lower(state), count(*) FROM (SELECT state FROM ready UNION ALL"
        " SELECT state FROM lease UNION ALL SELECT state FROM final) AS every GROUP BY 1"
    )
    assert found == expected, (found, expected)


def _nothing_waits(world: World) -> None:
    """In the demo; other tests on this cluster may have left resources that nobody takes."""
    value = world.observer.value
    waiting = world.sources.rows(
        "SELECT namespace.name, count(*) FROM ready JOIN lane ON lane.id = ready.lane_id"
        " JOIN namespace ON namespace.id = lane.namespace_id GROUP BY 1"
    )
    assert NAMESPACE not in waiting
    ours = f'namespace="{NAMESPACE}"'
    near(value(f"max(queueoperator_oldest_runnable_job_age_seconds{{{ours}}})"), 0)
    near(value(f"sum(queueoperator_needed_slots{{{ours}}}) or vector(0)"), 0)
    needed = world.observer.by("namespace", "sum by (namespace) (queueoperator_needed_slots) > 0")
    assert needed == waiting
    lanes = world.sources.sql("SELECT count(DISTINCT lane_id) FROM ready")
    near(value("max(queueoperator_waiting_lanes)"), lanes)


def _expired(world: World) -> None:
    lost = world.sources.sql(
        "SELECT count(*) FROM attempt WHERE event = 'LOSE' OR from_state = 'UNKNOWN_RETRY'"
    )
    near(world.observer.value(f"sum({ever('queueoperator_leases_expired_total')})"), lost)
    # The demo kills a worker.
    assert lost >= 1


def _one_replica(world: World) -> None:
    value = world.observer.value
    pod = world.sources.operator()
    near(value('sum(up{job="queue-operator"})'), 1)
    near(value("sum(queueoperator_leader)"), 1)
    near(value("min(queueoperator_store_up)"), 1)
    near(value("max(queueoperator_controller_up)"), 1)
    [(labels, one)] = world.observer.query("queueoperator_build_info")
    assert (labels["version"], one) == (__version__, 1)
    assert labels["pod"] == pod["metadata"]["name"]
    # Those of other tests on this cluster, whose queues have ended.
    others = len(world.sources.leases()) - len(world.sources.own_leases())
    refused = value("sum(queueoperator_controller_refused_namespaces)")
    assert refused <= others, (refused, others)
    near(value("sum(queueoperator_controller_over_quota_resources)"), 0)
    near(value("sum(queueoperator_controller_restarts_total)"), 0)
    near(value("max(queueoperator_unnamed_types)"), 0)
    [container] = pod["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def _behind(world: World) -> None:
    """All that is in the log is counted, which `_counters` says of each event."""
    assert world.sources.sql("SELECT count(*) FROM job_event") > 0
    near(world.observer.value("max(queueoperator_event_log_lag_seconds)"), 0)


def _streams(world: World) -> None:
    workers = [
        one
        for one in world.sources.objects("queueworkers", f"--namespace={NAMESPACE}")
        if {"type": "Ready", "status": "True"}.items() <= one["status"]["conditions"][0].items()
    ]
    assert len(workers) == len(world.sources.workers())
    slots = sum(one["status"]["slots"] for one in workers)
    found = world.observer.by("state", "sum by (state) (queueoperator_worker_slots)")
    assert found == {"free": slots, "busy": 0, "draining": 0}
    near(world.observer.value("sum(queueoperator_worker_streams)"), len(workers))


def _rest(world: World) -> None:
    counted = world.observer.value('sum(queueoperator_http_requests_total{code="401"})')
    near(counted - world.rest_before, world.rest)
    every = world.observer.value("sum(queueoperator_http_requests_total)")
    near(world.observer.value("sum(queueoperator_http_request_seconds_count)"), every)
    near(world.observer.value("sum(queueoperator_http_requests_in_flight)"), 0)
    near(world.observer.value("sum(queueoperator_event_streams)"), 0)
    # Two thousand jobs in batches of five hundred.
    created = 'queueoperator_http_requests_total{method="POST", route="/v1/jobs/batch"}'
    assert world.observer.value(f"sum({ever(created)})") >= 4


def _grpc(world: World) -> None:
    refused = 'queueoperator_grpc_calls_total{code="unauthenticated"}'
    near(world.observer.value(f"sum({refused})"), world.grpc)
    assert world.observer.value("sum(queueoperator_grpc_call_seconds_count)") >= world.grpc


def _store(world: World) -> None:
    calls = world.observer.value("sum(queueoperator_store_call_seconds_count)")
    commits = world.sources.sql(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    assert 100 < calls < commits
    errors = world.observer.query("sum(queueoperator_store_errors_total) or vector(0)")
    assert errors[0][1] < calls / 100
    near(world.observer.value("sum(queueoperator_stale_outcomes_total) or vector(0)"), 0)


def _pool(world: World) -> None:
    near(world.observer.value("sum(queueoperator_store_connections_max)"), 8)
    near(world.observer.value("sum(queueoperator_store_connection_waiters)"), 0)
    held = world.observer.value("sum(queueoperator_store_connections)")
    ours = world.sources.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'queue-operator'"
    )
    # The controller has connections of its own.
    assert 1 <= held <= min(8, ours)
    assert world.observer.value("sum(queueoperator_store_connection_wait_seconds_count)") > 100


def _processes(world: World) -> None:
    server, controller = world.sources.server_and_controller()
    value, job = world.observer.value, '{job="queue-operator"}'
    near(value(f"process_cpu_seconds_total{job}"), server.cpu_s, share=0.1, by=2)
    near(value(f"process_resident_memory_bytes{job}"), server.resident_bytes, share=0.2)
    near(value("queueoperator_controller_cpu_seconds_total"), controller.cpu_s, share=0.1, by=2)
    memory = value("queueoperator_controller_resident_memory_bytes")
    near(memory, controller.resident_bytes, share=0.2)
    sender = world.sources.sender()
    near(value("queueoperator_webhook_sender_cpu_seconds_total"), sender.cpu_s, share=0.1, by=2)
    memory = value("queueoperator_webhook_sender_resident_memory_bytes")
    near(memory, sender.resident_bytes, share=0.2)
    near(value("sum(queueoperator_webhook_sender_restarts_total)"), 0)
    # Four timers a second in each.
    lags = world.observer.by(
        "process", "sum by (process) (queueoperator_event_loop_lag_seconds_count)"
    )
    near(lags["server"], 4 * server.age_s, share=0.3)
    near(lags["controller"], 4 * controller.age_s, share=0.3)


_WRITTEN: Final = 'queueoperator_controller_status_writes_total{result="written"}'


def _statuses(world: World) -> None:
    """The API server counts the same writes, those of workers apart."""
    written = world.observer.value(f"sum({ever(_WRITTEN)})")
    near(written, world.asked_since(resource="queuejobs", subresource="status", code="200"))
    near(world.observer.value("sum(queueoperator_controller_status_backlog)"), 0)
    near(world.observer.value("sum(queueoperator_controller_intake_backlog)"), 0)
    near(world.observer.value("max(queueoperator_controller_status_lag_seconds)"), 0)
    for job in world.sources.objects("queuejobs", f"--namespace={NAMESPACE}"):
        assert job["status"]["state"] in {"COMPLETED", "DEAD_LETTER", "STOPPED", "UNSCHEDULED"}


def _requests(world: World) -> None:
    asked = world.observer.value(f"sum({ever('queueoperator_controller_api_requests_total')})")
    statuses = world.asked_since(resource="queuejobs", subresource="status")
    every = world.asked_since()
    assert statuses < asked < every, (statuses, asked, every)
    throttled = world.observer.value("sum(queueoperator_controller_throttled_total)")
    # Others are turned away too, while the storage of new definitions begins.
    turned_away = world.asked_since(code="429")
    assert throttled <= turned_away, (throttled, turned_away)
    watches = world.observer.by(
        "resource", "sum by (resource) (queueoperator_controller_watch_restarts_total)"
    )
    ended = world.asked_since(verb="WATCH", resource="queuejobs")
    assert watches["queuejobs"] <= ended, (watches, ended)


def _comparison(world: World) -> None:
    _, controller = world.sources.server_and_controller()
    at = world.observer.value("max(queueoperator_controller_last_comparison_timestamp_seconds)")
    assert 0 <= time.time() - at <= controller.age_s
    took = world.observer.value("max(queueoperator_controller_last_comparison_seconds)")
    assert 0 < took < controller.age_s
    owned = world.observer.value("sum(queueoperator_controller_owned_namespaces)")
    near(owned, len(world.sources.own_leases()))


def _database(world: World) -> None:
    sql, value = world.sources.sql, world.observer.value
    size = sql("SELECT pg_database_size(current_database())")
    near(value("max(queueoperator_database_size_bytes)"), size, share=0.1)
    expected = world.sources.rows(
        "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
        " WHERE schemaname = 'queue_operator'"
    )
    found = world.observer.by("table", "max by (table) (queueoperator_database_table_bytes)")
    assert {"job", "ready", "lease", "final", "job_event"} <= set(found)
    for table in ("job", "final", "attempt", "job_event"):
        near(found[table], expected[table], share=0.2)
    dead = world.observer.by("table", "max by (table) (queueoperator_database_dead_rows)")
    told = world.sources.rows(
        "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'queue_operator'"
    )
    near(dead["job"], told["job"], share=0.2, by=100)
    age = value("max(queueoperator_database_oldest_transaction_seconds)")
    real = time.time() - world.opened
    assert real - 45 < age < real
    assert age > 0
    states = world.observer.by("state", "max by (state) (queueoperator_database_connections)")
    assert states["idle_in_transaction"] >= 1
    clients = sql(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    near(sum(states.values()), clients, by=6)


def _workers(world: World) -> None:
    pods = world.sources.workers()
    value = world.observer.value
    near(value("count(queueworker_info == 1)"), len(pods))
    near(value("sum(queueworker_connected)"), len(pods))
    assert len(pods) == 3
    slots = world.observer.by("state", "sum by (state) (queueworker_slots)")
    assert slots == {"busy": 0, "free": 150}
    source = (ROOT / "examples" / "01-hello" / "handlers.py").read_text()
    handlers = len(re.findall(r"^@worker\.handler\(", source, re.M))
    near(value("max(queueworker_handlers)"), handlers)
    near(value("sum(queueworker_outcomes_unsent)"), 0)
    near(value("sum(queueworker_stuck_handlers)"), 0)
    near(value("sum(queueworker_leases_lost_total)"), 0)


def _attempts_of_workers(world: World) -> None:
    """Of those whose container was not killed: it took with it what was not scraped."""
    told = world.sources.rows(
        "SELECT worker_name, count(*) FROM (SELECT worker_name FROM attempt UNION ALL"
        " SELECT worker_name FROM final WHERE reason = 'COMPLETE' AND NOT EXISTS (SELECT FROM"
        " attempt WHERE attempt.job_no = final.job_no AND attempt.version = lease_version)"
        ") AS every GROUP BY 1"
    )
    found = world.observer.by("pod", "sum by (pod) (queueworker_attempts_total)")
    timed = world.observer.by("pod", "sum by (pod) (queueworker_attempt_seconds_count)")
    whole = [
        pod["metadata"]["name"]
        for pod in world.sources.workers()
        if pod["status"]["containerStatuses"][0]["restartCount"] == 0
    ]
    assert whole
    for pod in whole:
        near(found[pod], told.get(pod, 0))
        near(timed[pod], found[pod])


def _life_of_workers(world: World) -> None:
    for pod in world.sources.workers():
        name = f'pod="{pod["metadata"]["name"]}"'
        process = world.sources.worker_process(pod)
        value = world.observer.value
        near(value(f"process_cpu_seconds_total{{{name}}}"), process.cpu_s, share=0.1, by=2)
        memory = value(f"process_resident_memory_bytes{{{name}}}")
        near(memory, process.resident_bytes, share=0.2)
        lags = world.observer.by("loop", f"queueworker_event_loop_lag_seconds_count{{{name}}}")
        assert lags
        for count in lags.values():
            near(count, 2 * process.age_s, share=0.3)
        sessions = value(f"queueworker_sessions_total{{{name}}}")
        assert 1 <= sessions <= 3
        beats = value(f"queueworker_heartbeats_total{{{name}}}")
        answers = value(f"queueworker_heartbeat_answer_seconds_count{{{name}}}")
        assert answers <= beats
        last = world.observer.query(
            f"queueworker_last_heartbeat_answer_timestamp_seconds{{{name}}} > 0"
        )
        if answers:
            assert 0 < time.time() - last[0][1] < since_s(pod["status"]["startTime"])


def _messages(world: World) -> None:
    """Each that was delivered took one try at least, and those of a demo are all kept."""
    value, rows = world.observer.value, world.sources.rows
    states = rows("SELECT lower(state), count(*) FROM webhook_message GROUP BY 1")
    tries = world.observer.by("outcome", f"sum by (outcome) ({ever(_TRIES)})")
    assert set(tries) == {"delivered", "retried", "failed", "refused"}
    assert (states, tries["retried"] >= 1) == ({"pending": 1}, True)
    near(tries["delivered"], states.get("delivered", 0))
    near(tries["failed"] + tries["refused"], states.get("failed", 0))
    near(value("sum(queueoperator_webhook_delivery_seconds_count)"), sum(tries.values()))
    near(value("sum(queueoperator_webhook_pending) or vector(0)"), states.get("pending", 0))
    near(value("sum(queueoperator_webhook_failed) or vector(0)"), states.get("failed", 0))
    near(value("max(queueoperator_webhook_oldest_due_seconds)"), 0, by=60)


_TRIES: Final = "queueoperator_webhook_deliveries_total"
_SCRAPE: Final = ("scrape_samples_scraped", "up")


def _scrapes(world: World) -> None:
    """As many samples as the endpoint has, asked by us."""
    ip = world.sources.operator()["status"]["podIP"]
    with urllib.request.urlopen(f"http://{ip}:9090/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = sum(not line.startswith("#") for line in lines)
    found = world.observer.value('scrape_samples_scraped{job="queue-operator"}')
    near(found, samples, by=20)


_COMPARED: Final[Mapping[Callable[[World], None], Sequence[str]]] = {
    _counters: (
        "queueoperator_jobs_submitted_total",
        "queueoperator_job_attempts_total",
        "queueoperator_jobs_finished_total",
        "queueoperator_job_wait_seconds",
        "queueoperator_job_run_seconds",
    ),
    _jobs: ("queueoperator_jobs",),
    _nothing_waits: (
        "queueoperator_oldest_runnable_job_age_seconds",
        "queueoperator_waiting_lanes",
        "queueoperator_needed_slots",
    ),
    _expired: ("queueoperator_leases_expired_total",),
    _one_replica: (
        "queueoperator_leader",
        "queueoperator_store_up",
        "queueoperator_build_info",
        "queueoperator_controller_up",
        "queueoperator_controller_restarts_total",
        "queueoperator_controller_refused_namespaces",
        "queueoperator_controller_over_quota_resources",
        "queueoperator_unnamed_types",
    ),
    _behind: ("queueoperator_event_log_lag_seconds",),
    _streams: ("queueoperator_worker_streams", "queueoperator_worker_slots"),
    _rest: (
        "queueoperator_http_requests_total",
        "queueoperator_http_request_seconds",
        "queueoperator_http_requests_in_flight",
        "queueoperator_event_streams",
        "queueoperator_event_streams_sent_total",
        "queueoperator_event_streams_slow_total",
    ),
    _grpc: ("queueoperator_grpc_calls_total", "queueoperator_grpc_call_seconds"),
    _store: (
        "queueoperator_store_call_seconds",
        "queueoperator_store_errors_total",
        "queueoperator_stale_outcomes_total",
    ),
    _pool: (
        "queueoperator_store_connections",
        "queueoperator_store_connections_max",
        "queueoperator_store_connection_waiters",
        "queueoperator_store_connection_wait_seconds",
    ),
    _processes: (
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "queueoperator_controller_cpu_seconds_total",
        "queueoperator_controller_resident_memory_bytes",
        "queueoperator_webhook_sender_cpu_seconds_total",
        "queueoperator_webhook_sender_resident_memory_bytes",
        "queueoperator_webhook_sender_restarts_total",
        "queueoperator_event_loop_lag_seconds",
    ),
    _statuses: (
        "queueoperator_controller_status_writes_total",
        "queueoperator_controller_status_backlog",
        "queueoperator_controller_intake_backlog",
        "queueoperator_controller_status_lag_seconds",
    ),
    _messages: (
        "queueoperator_webhook_deliveries_total",
        "queueoperator_webhook_delivery_seconds",
        "queueoperator_webhook_pending",
        "queueoperator_webhook_failed",
        "queueoperator_webhook_oldest_due_seconds",
    ),
    _requests: (
        "queueoperator_controller_api_requests_total",
        "queueoperator_controller_throttled_total",
        "queueoperator_controller_watch_restarts_total",
    ),
    _comparison: (
        "queueoperator_controller_last_comparison_timestamp_seconds",
        "queueoperator_controller_last_comparison_seconds",
        "queueoperator_controller_owned_namespaces",
    ),
    _database: (
        "queueoperator_database_size_bytes",
        "queueoperator_database_table_bytes",
        "queueoperator_database_dead_rows",
        "queueoperator_database_oldest_transaction_seconds",
        "queueoperator_database_connections",
    ),
    _workers: (
        "queueworker_info",
        "queueworker_connected",
        "queueworker_slots",
        "queueworker_handlers",
        "queueworker_outcomes_unsent",
        "queueworker_stuck_handlers",
        "queueworker_leases_lost_total",
    ),
    _attempts_of_workers: ("queueworker_attempts_total", "queueworker_attempt_seconds"),
    _life_of_workers: (
        "queueworker_event_loop_lag_seconds",
        "queueworker_sessions_total",
        "queueworker_heartbeats_total",
        "queueworker_heartbeat_answer_seconds",
        "queueworker_last_heartbeat_answer_timestamp_seconds",
    ),
    _scrapes: _SCRAPE,
}
CHECKS: Final = [Check(metrics, compare) for compare, metrics in _COMPARED.items()]
"""Every comparison."""
