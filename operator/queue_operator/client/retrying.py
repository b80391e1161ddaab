"""When a request that failed is sent again."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

from queue_operator.client.protocol import NOT_SENT, Reply

REFUSED: Final = 429
"""The answer of a server that has done nothing, and may later."""

RETRIED_STATUSES: Final = frozenset({REFUSED, 502, 503, 504})
"""Answers of a server, or of a proxy before it, that may be others later."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` tries. The pause doubles from `initial_delay_s`, with full jitter,
    and is never shorter than the server's Retry-After. A server that wants a longer one than
    `max_delay_s` is not asked again; for a quota, which tells exactly, `max_quota_delay_s` may
    be another bound. `on_pause` is told before each pause, in seconds, with the answer if there
    was one; not of those for single jobs of a batch, of which `submit_all` tells.
    """

    attempts: int = 4
    initial_delay_s: float = 0.2
    max_delay_s: float = 10.0
    max_quota_delay_s: float | None = None
    rng: Callable[[], float] = random.random
    on_pause: Callable[[float, httpx.Response | None], None] | None = None

    def again(self, failures: int, reply: Reply, *, is_repeatable: bool = True) -> bool:
        """Whether to try again after `failures` tries. What must not be done twice is tried
        again only if it cannot have been done.
        """
        if reply.response is None:
            again = is_repeatable or isinstance(reply.failure, NOT_SENT)
            return again and failures < self.attempts
        status, wanted_s = reply.response.status_code, retry_after_s(reply.response)
        if status == REFUSED:
            return self.waits_for_quota(failures, wanted_s)
        again = is_repeatable and status in RETRIED_STATUSES
        return again and failures < self.attempts and wanted_s <= self.max_delay_s

    def waits_for_quota(self, failures: int, wanted_s: float) -> bool:
        """Whether to try again after so many tries, if a quota has room no sooner than that."""
        most_s = self.max_delay_s if self.max_quota_delay_s is None else self.max_quota_delay_s
        return failures < self.attempts and wanted_s <= most_s

    def pause_s(self, failures: int, response: httpx.Response | None) -> float:
        """Seconds before the next try."""
        ceiling = min(self.max_delay_s, self.initial_delay_s * 2.0 ** min(failures - 1, 32))
        return max(retry_after_s(response), self.rng() * ceiling)


def retry_after_s(response: httpx.Response | None) -> float:
    """How long the server says to wait, 0 if it does not."""
    wanted = "" if response is None else response.headers.get("retry-after", "")
    return float(wanted) if wanted.isascii() and wanted.isdecimal() else 0.0
