"""Sockets of servers, the same for every port, and what to say where one cannot be had."""

import errno
import resource
import socket
from typing import Any, Final

from queue_operator.domain.hosts import EVERY, authority

_EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104  (in a pod)
_BACKLOG: Final = 2048
_REASONS: Final = {
    errno.EADDRINUSE: "the port is taken",
    errno.EADDRNOTAVAIL: "the address is none of this machine's",
    errno.EAFNOSUPPORT: "this machine has no IPv6",
    errno.EACCES: "a port below 1024 needs more rights than this process has",
}
_OF_THE_PORT: Final = (errno.EADDRINUSE, errno.EACCES)


def usable(host: str) -> str:
    """`host`; where the machine has no IPv6, every address is every one of IPv4."""
    return _EVERY_IPV4 if host == EVERY and not _has_ipv6() else host


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; on `::` it takes connections of both families. Raises OSError."""
    host = usable(host)
    family, address = _found(host, port)
    return socket.create_server(
        address, family=family, backlog=_BACKLOG, dualstack_ipv6=host == EVERY
    )


def _found(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Family and address; of a name that has both families the IPv4 one."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = min(found, key=lambda one: one[0] is not socket.AF_INET)
    return family, address


def allow_open_files(wanted: int) -> str:
    """Raises the number of files that this process may open to `wanted`, or as far as it may; what
    is lacking and what to do, empty for nothing. Runtimes of containers give 1,024 to those who do
    not ask: then a few silent connections keep everybody out, and the database too.
    """
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if given == resource.RLIM_INFINITY or given >= wanted:
        return ""
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    if allowed == wanted:
        return ""
    return (
        f"this process may open {allowed} files, and its ports may have more connections than "
        f"that: raise the hard limit (ulimit -Hn, LimitNOFILE) to {wanted}, or lower "
        "QUEUE_OPERATOR_REST__CONNECTIONS and QUEUE_OPERATOR_GRPC__CONNECTIONS"
    )


def refusal(what: str, host: str, port: int, error: OSError | None, setting: str) -> str:
    """Why nobody can listen there, and what to set; `setting` is the section of the settings."""
    if isinstance(error, socket.gaierror):
        reason = "nobody knows that name"
    elif error is None or error.errno is None:
        reason = str(error or "no reason is known")
    else:
        reason = _REASONS.get(error.errno, error.strerror or str(error))
    field = "PORT" if error is not None and error.errno in _OF_THE_PORT else "HOST"
    where = authority(host, port)
    return f"cannot serve {what} on {where}: {reason}; set QUEUE_OPERATOR_{setting}__{field}"


def why_not(host: str, port: int) -> OSError | None:
    """What stands against listening there, as far as the system says; None for nothing."""
    try:
        listening(host, port).close()
    except OSError as error:
        return error
    return None


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True
