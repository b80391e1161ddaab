"""What a fork must not share with its parent: connections, and threads, which it does not have."""

import os

from queue_operator.domain.errors import QueueError


class WrongProcess(QueueError):
    """A call came from a fork of the process that made the object. Nothing of it happened."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was made in another process and does not survive a fork: make one in each "
            "process, or start processes by spawn"
        )


class Birthplace:
    """The process that made it. `what` is made there too."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of that one."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises WrongProcess."""
        if self.is_elsewhere:
            raise WrongProcess(self._what)
