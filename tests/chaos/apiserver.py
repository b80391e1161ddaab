"""The API server of a chaos run: a real one, behind a line that can fail as API servers do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.doors import NAMESPACE
from tests.chaos.plan import Fault
from tests.controller.kubectl import Kubectl, install
from tests.controller.proxy import Proxy, Verdict
from tests.controller.verdicts import (
    away,
    broken_watches,
    expired_lists,
    fine,
    leader_changed,
    overloaded,
    unavailable,
)

from queue_operator.devcluster import ClusterInfo

VERDICTS: Final[dict[Fault, tuple[Verdict, ...]]] = {
    Fault.API_UNAVAILABLE: (unavailable,),
    Fault.API_OVERLOADED: (overloaded,),
    Fault.API_LEADER: (leader_changed,),
    Fault.API_EXPIRED: (expired_lists,),
    Fault.API_BROKEN_WATCH: tuple(map(broken_watches, (500, 429, 410))),
    Fault.API_CUT: (fine,),
    Fault.API_AWAY: (away,),
}


class ApiServer:
    """Clients reach it as it is, operators through the line."""

    def __init__(self, kubectl: Kubectl, line: Proxy) -> None:
        self.kubectl = kubectl
        self._line = line
        self._broken = 0

    @property
    def kubeconfig(self) -> Path:
        """Of the operators."""
        return self._line.kubeconfig

    def fail(self, fault: Fault) -> None:
        """From now on; what is under way is cut off."""
        ways = VERDICTS[fault]
        self._broken += 1
        self._line.verdict = ways[self._broken % len(ways)]
        self._line.cut()

    def heal(self) -> None:
        self._line.verdict = fine


@contextmanager
def api_server(cluster: ClusterInfo, folder: Path) -> Iterator[ApiServer]:
    """With a namespace of the run's own."""
    kubectl = install(cluster, NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    try:
        with Proxy(cluster.kubeconfig, folder, fine) as line:
            yield ApiServer(kubectl, line)
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")
