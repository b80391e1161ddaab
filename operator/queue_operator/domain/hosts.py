"""Addresses that servers listen on, as people write them."""

import ipaddress
import re
from typing import Final

EVERY: Final = "::"
"""Every address of the machine, of both families."""
_NAME: Final = re.compile(r"[\w.-]+")


def host_of(text: str) -> str:
    """The address or name in `text`, without brackets. Raises ValueError for what is neither."""
    host = text.strip()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        # All digits and dots: meant as an address.
        if host.strip("0123456789.") and _NAME.fullmatch(host):
            return host
    raise ValueError(
        f"{text!r} is no address: write it as 0.0.0.0, ::, ::1 or [::1], or as a name; "
        "the port has a setting of its own"
    )


def authority(host: str, port: int) -> str:
    """Both in one word, as URLs and gRPC have them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str) -> bool:
    """Whether it is one as `ipaddress` takes it, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_within(host: str, network: str) -> bool:
    """Whether `host` is an address of the network; False for names, and for what is no network."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    name = host.strip("[]").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
