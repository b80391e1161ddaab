"""The incident of `examples/04-observability`, on real servers and workers."""

from typing import Final

from observability.asking import EVERYTHING, Period, looks
from observability.draw import boards
from observability.incident import FAULTS, Fault, Traffic, play
from observability.local import Local, local

CALM_S: Final = 3.0


def _plant(traffic: Traffic, queue: Local) -> None:
    for fault in FAULTS:
        fault.plant(traffic, queue)


def _mend(traffic: Traffic, queue: Local) -> None:
    for fault in FAULTS:
        fault.mend(traffic, queue)


# The example plants one after the other, which takes a reader's time. That an alert speaks of no
# other fault than its own is what `test_alerts` asks.
AT_ONCE: Final = Fault(
    name="at-once",
    story="All of them.",
    plant=_plant,
    mend=_mend,
    alerts=frozenset[str]().union(*(fault.alerts for fault in FAULTS)),
)


def test_alerts_speak_of_each_fault_and_every_expression_has_an_answer() -> None:
    assert [fault.name for fault in FAULTS] == ["failing-type", "dead-worker", "growing-backlog"]
    with local() as queue:
        assert not queue.prometheus.firing() & AT_ONCE.alerts
        # Waits for all of their alerts, and raises if they do not speak.
        [(_, period)] = play(queue, [AT_ONCE], calm_s=CALM_S, shown_s=0.0)
        found = _answers(queue, period)
    for title in ("Taken from workers", "Backlog", "Dead letters"):
        assert found[f"Queue Operator / Overview: {title}"], title


def _answers(queue: Local, period: Period) -> dict[str, int]:
    """How many series each panel gets. Raises NoAnswer for an expression that is refused."""
    found: dict[str, int] = {}
    for board in boards().values():
        for look in looks(board, period, EVERYTHING):
            name = f"{look.dashboard}: {look.panel}"
            found[name] = found.get(name, 0) + len(
                queue.prometheus.api.over(look.expression, period)
            )
    return found
