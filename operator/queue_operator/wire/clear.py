"""Tokens that travel as they are."""

import logging

from queue_operator.domain.hosts import is_loopback


def warn_of_token(logger: logging.Logger, address: str, host: str, remedy: str) -> None:
    """Says that a token is sent to `address` without TLS, unless that is this machine."""
    if not is_loopback(host):
        logger.warning(
            "the token is sent to %s in clear, for everybody to read who is on the way: %s",
            address,
            remedy,
        )


def host_of_target(target: str) -> str:
    """The host in an address of gRPC, such as dns:///name:50051; that of a socket in the file
    system is this machine.
    """
    if target.startswith(("unix:", "unix-abstract:")):
        return "localhost"
    return target.rpartition("/")[2].removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
