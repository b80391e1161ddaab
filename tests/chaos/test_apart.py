"""What counts as disturbed by the API server."""

from tests.chaos.apart import alone, disturbed
from tests.chaos.plan import Fault

from queue_operator.testing.history import History, Kind, Log


class Times:
    """A log whose records have the times that are said."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = Log("operator", clock=lambda: self.now)

    def struck(self, fault: Fault, since: float, until: float) -> None:
        self.now = until
        self.log.write(Kind.FAULT, fault=fault.name, since=since, until=until)

    def seen(self, kind: Kind, at: float) -> None:
        self.now = at
        self.log.write(kind, assignee_id=f"at {at:.0f}")

    @property
    def history(self) -> History:
        return History(self.log.records, {})


def test_sessions_while_only_the_api_server_failed() -> None:
    times = Times()
    times.seen(Kind.STREAM_OPENED, 5.0)
    times.struck(Fault.API_AWAY, 10.0, 14.0)
    times.seen(Kind.STREAM_CLOSED, 12.0)
    times.seen(Kind.STREAM_OPENED, 13.0)
    times.struck(Fault.KILL_WORKER, 20.0, 20.0)
    times.seen(Kind.STREAM_CLOSED, 21.0)
    times.struck(Fault.API_CUT, 22.0, 22.0)
    assert [record.said["fault"] for record in alone(times.history)] == ["API_AWAY"]
    told = disturbed(times.history)
    assert len(told) == 2
    assert "stream=at 12" in told[0]
    assert "stream=at 13" in told[1]


def test_where_nothing_else_struck_all_of_it_counts() -> None:
    times = Times()
    times.struck(Fault.API_CUT, 10.0, 10.0)
    times.seen(Kind.STREAM_CLOSED, 1000.0)
    assert len(disturbed(times.history)) == 1


def test_where_the_api_server_never_failed_nothing_is_its_fault() -> None:
    times = Times()
    times.seen(Kind.STREAM_CLOSED, 1.0)
    assert disturbed(times.history) == []
