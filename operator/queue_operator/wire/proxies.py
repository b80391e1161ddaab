"""The proxy that gRPC takes from the environment, to be named where nobody is reached: gRPC's own
errors tell its address as if it were the server's.
"""

import os
from typing import Final
from urllib.parse import urlsplit

from queue_operator.domain.hosts import authority, is_within
from queue_operator.wire.clear import host_of_target

_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS: Final = ("no_grpc_proxy", "no_proxy")
"""The first that is set counts, also an empty one. Names in capitals are not looked at."""


def way_to(address: str) -> str:
    """What stands between here and `address`, a target of gRPC, and how to take it away; empty
    for nothing.
    """
    host = host_of_target(address).strip("[]")
    variable = _first(_PROXIES)
    shown = _without_password(os.environ.get(variable, ""))
    if not shown or address.startswith("unix") or _is_excepted(host):
        return ""
    return (
        f"it was asked for by way of the proxy of {variable} ({shown}): correct it, unset it, or "
        f"name {host} in {_first(_EXCEPTIONS) or _EXCEPTIONS[-1]}"
    )


def _first(names: tuple[str, ...]) -> str:
    return next((name for name in names if name in os.environ), "")


def _without_password(url: str) -> str:
    """Empty for what gRPC passes over: it knows proxies of HTTP only."""
    try:
        given = urlsplit(url)
        host, port = given.hostname, given.port
    except ValueError:
        return ""
    if given.scheme != "http" or not host:
        return ""
    return f"http://{authority(host, port or 80)}"


def _is_excepted(host: str) -> bool:
    listed = os.environ.get(_first(_EXCEPTIONS), "").split(",")
    entries = [entry.strip() for entry in listed if entry.strip()]
    return any(host.endswith(entry) or is_within(host, entry) for entry in entries)
