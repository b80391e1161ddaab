"""The incident of `examples/04-observability`, on real servers and workers."""

from typing import Final

from observability.asking import EVERYTHING, Period, looks
from observability.draw import boards
from observability.incident import FAULTS, play
from observability.local import Local, local

CALM_S: Final = 3.0


def test_alerts_speak_of_each_fault_and_every_expression_has_an_answer() -> None:
    with local() as queue:
        # Waits for the alerts of each, and raises if they do not speak.
        played = list(play(queue, FAULTS, calm_s=CALM_S, shown_s=0.0))
        _, period = played[-1]
        found = _answers(queue, period)
    assert [fault.name for fault, _ in played] == ["failing-type", "dead-worker", "growing-backlog"]
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
