"""What a queue is said to be, from what is known of it."""

from typing import Any

import pytest

from queue_operator.domain.situation import (
    Code,
    Hold,
    Level,
    LostNow,
    Situation,
    TypeNow,
    Verdict,
    WorkerNow,
)
from queue_operator.domain.verdict import judge
from queue_operator.domain.words import span

MAILER = WorkerNow(name="mailer-1", types=frozenset({"mail"}), capacity=4, busy=2)
FULL = WorkerNow(name="mailer-1", types=frozenset({"mail"}), capacity=4, busy=4)
ANY = WorkerNow(name="any-1", capacity=2)


def mail(**fields: Any) -> TypeNow:
    return TypeNow(**{"type": "mail", **fields})


def verdict(*types: TypeNow, **fields: Any) -> Verdict:
    return judge(Situation(namespace="shop", types=types, **fields))


@pytest.mark.parametrize(
    ("types", "fields", "level", "sentence"),
    [
        ((), {}, Level.HEALTHY, "Healthy: nothing runs, and nothing could."),
        (
            (),
            {"later": 3},
            Level.HEALTHY,
            "Healthy: nothing runs, and nothing could; 3 jobs may not start yet.",
        ),
        (
            (mail(due=2, running=2, completed=1200, oldest_s=0.4),),
            {"workers": (MAILER,)},
            Level.HEALTHY,
            "Healthy: 2 jobs running, 2 about to start, 1,200 completed in 5 min.",
        ),
        (
            (mail(due=2000, running=4, completed=5, oldest_s=20.0),),
            {"workers": (FULL,)},
            Level.BUSY,
            "Busy: all 4 slots of 1 worker are taken, and 2,000 jobs wait, the oldest for 20 s.",
        ),
        (
            (mail(due=2000, running=2, completed=5, oldest_s=20.0),),
            {"workers": (MAILER,)},
            Level.BUSY,
            "Busy: there are 4 slots of 1 worker, and 2,000 jobs wait, the oldest for 20 s.",
        ),
        (
            (mail(due=4, running=2, completed=5, oldest_s=20.0),),
            {"workers": (MAILER,)},
            Level.HEALTHY,
            "Healthy: 2 jobs running, 4 about to start, 5 completed in 5 min.",
        ),
        (
            (mail(due=1, running=1, completed=5, oldest_s=301.0),),
            {"workers": (WorkerNow(name="w", busy=1),)},
            Level.DEGRADED,
            "Degraded: the one slot there is is taken, and 1 job waits, for 5 min 1 s.",
        ),
        (
            (mail(due=5, oldest_s=60.0),),
            {},
            Level.STUCK,
            "Stuck: no worker is connected for mail, and 5 jobs wait, the oldest for 1 min.",
        ),
        (
            (mail(due=5, oldest_s=60.0), TypeNow(type="resize", due=1, running=1)),
            {"workers": (WorkerNow(name="r", types=frozenset({"resize"}), capacity=2, busy=1),)},
            Level.DEGRADED,
            "Degraded: no connected worker handles mail, and 5 jobs wait, the oldest for 1 min.",
        ),
        (
            (mail(due=1, oldest_s=90.0),),
            {"workers": (WorkerNow(name="w", draining=True),)},
            Level.STUCK,
            "Stuck: every worker that handles mail drains, and 1 job waits, for 1 min 30 s.",
        ),
        (
            (mail(due=9, oldest_s=2.0),),
            {"holds": (Hold(reason="deploy", by="ada"),), "workers": (ANY,)},
            Level.STUCK,
            "Stuck: the namespace is paused by ada (deploy), and 9 jobs wait, the oldest for 2 s.",
        ),
        (
            (mail(due=9), TypeNow(type="resize", running=1)),
            {"holds": (Hold(type="mail"),), "workers": (ANY,)},
            Level.STUCK,
            "Stuck: mail is paused, and 9 jobs wait.",
        ),
        (
            (mail(completed=10, attempts_failed=40, running=1, code="SMTP"),),
            {"workers": (MAILER,)},
            Level.DEGRADED,
            "Degraded: mail fails: 40 of 50 attempts in 5 min, mostly SMTP.",
        ),
        (
            (mail(due=3, oldest_s=70.0),),
            {"workers": (ANY,)},
            Level.DEGRADED,
            "Degraded: free workers leave mail alone: 3 jobs wait, the oldest for 1 min 10 s.",
        ),
        (
            (mail(due=10, running=3, completed=100, oldest_s=7200.0),),
            {"workers": (MAILER,)},
            Level.DEGRADED,
            "Degraded: mail is late although slots are free: 10 jobs wait, the oldest for 2 h.",
        ),
        (
            (mail(due=1, oldest_s=5.0),),
            {"workers": (WorkerNow(name="w", draining=True),)},
            Level.HEALTHY,
            "Healthy: 0 jobs running, 1 about to start, 0 completed in 5 min.",
        ),
        (
            (mail(due=1), TypeNow(type="sms", due=2)),
            {
                "holds": (Hold(type="mail", by="ada", reason="a"), Hold(type="sms", by="bob")),
                "workers": (ANY,),
            },
            Level.STUCK,
            "Stuck: mail and sms are paused, and 3 jobs wait.",
        ),
        (
            (mail(due=3, running=1, oldest_s=70.0),),
            {"workers": (ANY,), "may_run": False},
            Level.BUSY,
            "Busy: the namespace runs as many jobs as its quota allows, and 3 jobs wait, the "
            "oldest for 1 min 10 s.",
        ),
        (
            (mail(running=1),),
            {"workers": (ANY, WorkerNow(name="gone", silent_s=40.0))},
            Level.DEGRADED,
            "Degraded: 1 worker has been silent for 40 s: gone.",
        ),
    ],
)
def test_the_sentence(
    types: tuple[TypeNow, ...], fields: dict[str, Any], level: Level, sentence: str
) -> None:
    found = verdict(*types, **fields)
    assert (found.level, found.sentence) == (level, sentence)


@pytest.mark.parametrize(
    "one",
    [
        mail(completed=100, attempts_failed=4),
        mail(completed=100, attempts_failed=24),
        mail(due=2, oldest_s=14.0),
        mail(due=0, oldest_s=0.0),
    ],
    ids=["few-failures", "a-small-part", "a-worker-may-be-starting", "nothing-waits"],
)
def test_what_is_no_reason_to_worry(one: TypeNow) -> None:
    assert verdict(one).level is Level.HEALTHY


def test_the_worst_comes_first_and_the_others_are_counted() -> None:
    found = verdict(
        mail(due=9, oldest_s=400.0, running=4),
        TypeNow(type="resize", due=2, oldest_s=100.0),
        TypeNow(type="report", attempts_failed=20),
        workers=(FULL, WorkerNow(name="r", types=frozenset({"report"}))),
    )
    assert found.level is Level.DEGRADED
    assert [one.code for one in found.causes] == [Code.NO_WORKER, Code.FAILING, Code.ALL_BUSY]
    assert found.sentence.endswith("(and 2 other causes).")
    assert found.causes[0].evidence["waiting"] == 2
    assert found.causes[1].command == "queue-operator failures --type report --namespace shop"


def test_what_keeps_everything_back_is_told_first() -> None:
    """Also where something else was found before it."""
    found = verdict(mail(due=9, attempts_failed=20), holds=(Hold(type="mail"),), workers=(ANY,))
    assert (found.level, found.causes[0].code) == (Level.STUCK, Code.PAUSED)


def test_many_types_are_one_cause() -> None:
    found = verdict(*(TypeNow(type=f"t{n}", due=1, oldest_s=60.0 + n) for n in range(500)))
    [cause] = found.causes
    assert cause.message.startswith("no worker is connected for t0 and 499 others, and 500 jobs")
    assert (len(cause.types), cause.evidence["types"]) == (10, 500)


class _Counted(frozenset[str]):
    """Types of a worker that count how often somebody looks for one."""

    looks = 0

    def __contains__(self, kind: object) -> bool:
        _Counted.looks += 1
        return super().__contains__(kind)


def test_types_times_workers_is_not_what_it_costs() -> None:
    """It is asked in the server's loop, with thousands of types and hundreds of workers."""
    _Counted.looks = 0
    types = [TypeNow(type=f"t{n}", due=1, oldest_s=60.0) for n in range(2000)]
    own = [WorkerNow(name=f"w{n}", types=_Counted({f"t{n}"}), busy=1) for n in range(100)]
    found = verdict(*types, workers=(*own, *own, WorkerNow(name="any", busy=1)))
    assert found.causes[0].message.startswith("all 201 slots of 201 workers are taken, and 2,000")
    assert _Counted.looks < 2000


def test_a_pause_that_keeps_nothing_back_is_told_but_no_reason_to_worry() -> None:
    found = verdict(mail(running=1), holds=(Hold(type="sms"), Hold(type="fax")), workers=(ANY,))
    assert found.level is Level.HEALTHY
    assert [one.types for one in found.causes] == [("sms",), ("fax",)]


def test_a_name_stays_in_its_sentence_and_its_command() -> None:
    name = "a\nb'; rm -rf ~ #" + "x" * 200
    found = verdict(TypeNow(type=name, due=1, oldest_s=60.0), holds=(Hold(type=name),))
    assert "\n" not in found.sentence
    assert len(found.sentence) < 300
    quoted = "'" + name.replace("'", "'\"'\"'") + "'"
    assert found.causes[0].command == f"queue-operator resume {quoted} --namespace shop"


@pytest.mark.parametrize("due", [0, 1])
def test_a_type_is_no_option_of_its_command(due: int) -> None:
    found = verdict(TypeNow(type="--all", due=due), holds=(Hold(type="--all"),))
    assert found.causes[0].command == "queue-operator resume --namespace shop -- --all"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (
            (LostNow(name="mailer-7", ago_s=120.0, jobs=3),),
            "Degraded: worker mailer-7 died 2 min ago with 3 jobs; they were taken back to be run "
            "again.",
        ),
        (
            (LostNow(name="mailer-7", ago_s=7.0, jobs=1),),
            "Degraded: worker mailer-7 died 7 s ago with 1 job; it was taken back to be run again.",
        ),
        (
            (LostNow(name="mailer-7", ago_s=7.0),),
            "Degraded: worker mailer-7 died 7 s ago with no job.",
        ),
        (
            tuple(LostNow(name=f"w-{n}", ago_s=400.0 - 100 * n, jobs=n) for n in range(4)),
            "Degraded: 4 workers (w-0 and 3 others) died, the last 1 min 40 s ago, with 6 jobs; "
            "they were taken back to be run again.",
        ),
        (
            (LostNow(name="mailer-7", ago_s=301.0, jobs=3),),
            "Healthy: nothing runs, and nothing could.",
        ),
    ],
)
def test_a_dead_worker_is_told_of(lost: tuple[LostNow, ...], sentence: str) -> None:
    found = verdict(lost=lost)
    assert found.sentence == sentence
    [cause] = found.causes
    assert cause.code is Code.LOST_WORKERS
    assert cause.evidence["jobs"] == sum(one.jobs for one in lost)
    newest = min(lost, key=lambda one: one.ago_s).name
    assert cause.command == f"kubectl -n shop describe pod {newest}"
