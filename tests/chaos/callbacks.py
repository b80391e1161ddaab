"""Callback URLs of a chaos run: receivers of every kind, in a process of their own."""

import random
from dataclasses import dataclass
from typing import Final

TOTAL_S: Final = 1.5
"""How long a try may take."""
GOOD: Final = 50
"""So many receivers do as they should."""
BAD: Final = ("slow", "failing", "crowded", "never", "closing", "endless", "endless-head")
"""One receiver of each, which accepts what it is told a second time."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """All receivers listen on one port, each at an address of its own."""

    port: int

    @property
    def settings(self) -> dict[str, str]:
        """What operators must be told so that they tell these receivers."""
        return {
            "WEBHOOKS__ALLOW": '["127.0.0.0/8"]',
            "WEBHOOKS__ALLOW_HTTP": "true",
            "WEBHOOKS__PORTS": f"[{self.port}]",
            "WEBHOOKS__TOTAL_S": str(TOTAL_S),
        }

    def url(self, number: int) -> str:
        """Of the receivers in turn."""
        place = number % (GOOD + len(BAD))
        if place < GOOD:
            return f"http://127.0.1.{place + 1}:{self.port}/good"
        way = BAD[place - GOOD]
        return f"http://127.0.2.{place + 1}:{self.port}/{way}/1"

    def drawn(self, rng: random.Random) -> str:
        """Every second one is good."""
        good = rng.random() < 0.5
        return self.url(rng.randrange(GOOD) if good else GOOD + rng.randrange(len(BAD)))
