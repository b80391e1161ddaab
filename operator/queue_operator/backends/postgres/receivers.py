"""Receivers of messages as numbers, which an index holds better than texts."""

import hashlib
from collections.abc import Iterable, Iterator

from queue_operator.backends.webhooks import receiver_of
from queue_operator.domain.job import Job


def number_of(receiver: str) -> int:
    """The same in every process and release."""
    digest = hashlib.blake2b(receiver.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def receivers(jobs: Iterable[Job]) -> Iterator[int]:
    """Those of jobs that have a callback; most of a batch have the same."""
    known: dict[tuple[str, str], int] = {}
    for job in jobs:
        told = job.namespace, job.callback_url
        if told not in known:
            known[told] = number_of(receiver_of(*told))
        yield known[told]
