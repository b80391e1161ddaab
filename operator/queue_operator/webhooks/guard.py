"""Keeps callbacks from reaching inside: once when they are given, without asking for a name, and
again with the very address that is about to be connected to.
"""

import socket
from collections.abc import Callable
from typing import Final

from queue_operator.domain.callbacks import check_callback_url
from queue_operator.domain.reach import Reach

_ANY_PORT: Final = 9
"""Nothing is sent there."""


def is_own(address: str, port: int = _ANY_PORT) -> bool:
    """Whether it is one of this machine's (in a pod: of the pod's): only those are asked from
    themselves. Sends nothing. Raises OSError where no way leads there.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((address, port))
        return bool(asking.getsockname()[0] == asking.getpeername()[0])


class Guard:
    """What `reach` opens, and never this process's own machine unless its address is named."""

    def __init__(self, reach: Reach, *, own: Callable[[str], bool] = is_own) -> None:
        self._reach = reach
        self._own = own

    def check_url(self, field: str, url: object) -> None:
        """Raises InvalidArgument for one that may not be called. Asks no name server."""
        check_callback_url(field, url, self._reach)

    def judges(self, address: str, host: str) -> str | None:
        """Why `host` may not have this address."""
        return self._reach.address_fault(address, host)

    def allows(self, address: str, port: int, host: str) -> str | None:
        """Why nothing may connect to it for `host`; None where it may.

        Raises OSError where no way leads to the address, so that nobody can say whose it is.
        """
        fault = self._reach.port_fault(port) or self._reach.address_fault(address, host)
        if fault is not None:
            return fault
        if not self._reach.names_address(address) and self._own(address):
            return f"{address} is the sender's own"
        return None

    def trusts_name(self, host: str) -> bool:
        """Whether `allow` has it by name."""
        return self._reach.names_host(host)
