"""What the controller's process counts, as the server's process sees it."""

from queue_operator.bootstrap import SPAWN, ControllerGate
from queue_operator.controller.ports import ControllerStats
from queue_operator.settings import ControllerSettings


def test_the_server_sees_how_many_are_over_a_quota() -> None:
    gate = ControllerGate(ControllerSettings(enabled=True))
    assert gate.waiting() == 0
    stats = ControllerStats(over_quota=gate.over_quota)
    process = SPAWN.Process(target=setattr, args=(stats.over_quota, "value", 7))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert gate.waiting() == 7


def test_it_counts_nothing_where_no_controller_runs() -> None:
    assert ControllerGate(ControllerSettings(enabled=False)).waiting() is None
