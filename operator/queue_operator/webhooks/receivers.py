"""Who is told how much at a time, so that no receiver waits for another one that is slow."""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from queue_operator.backends.webhooks import Message

REMEMBERED: Final = 10_000
"""Receivers of which nothing is held, and what is known of them."""
MOST_FULL: Final = 1000
"""Names that a claim is told at most."""


class Standing(Enum):
    """What is known of a receiver by its last try."""

    NEW = auto()
    PROVEN = auto()
    FAILING = auto()


SHARES: Final = {Standing.NEW: 2, Standing.FAILING: 4}
"""The part of all places that these may have: a half and a quarter."""


@dataclass(slots=True, eq=False)
class Held:
    """A message that this process has claimed, and until when a try of it has to begin."""

    message: Message
    body: bytes
    begin_by_s: float


@dataclass(slots=True)
class Receiver:
    """`width` is how many tries at a time it is worth: one at first, twice as many with each one
    that succeeds, and one after one that did not.
    """

    standing: Standing = Standing.NEW
    width: int = 1
    active: int = 0
    waiting: deque[Held] = field(default_factory=deque)

    @property
    def held(self) -> int:
        return self.active + len(self.waiting)


class Receivers:
    """Bookkeeping without any time and any network of its own. However many receivers are dead,
    those that answer have a quarter of the `places` for themselves, and those that nobody knows
    yet another one beside those that fail.
    """

    def __init__(self, *, per_receiver: int, places: int) -> None:
        self._most = per_receiver
        self._places = places
        self._shares = {one: max(1, places // part) for one, part in SHARES.items()}
        self._known: OrderedDict[str, Receiver] = OrderedDict()
        self._busy: dict[str, Receiver] = {}
        self._by_standing: Counter[Standing] = Counter()
        self.held = 0
        self.active = 0

    def _of(self, name: str) -> Receiver:
        receiver = self._known.get(name)
        if receiver is None:
            receiver = self._known[name] = Receiver()
            self._forget()
        self._known.move_to_end(name)
        return receiver

    def _forget(self) -> None:
        if len(self._known) > REMEMBERED:
            for name, receiver in self._known.items():
                if not receiver.held:
                    del self._known[name]
                    return

    def _is_used_up(self, standing: Standing) -> bool:
        share = self._shares.get(standing)
        return share is not None and self._by_standing[standing] >= share

    @property
    def room(self) -> int:
        """So many more may be claimed."""
        return max(0, self._places - self.held)

    def full(self) -> list[str]:
        """Of whom nothing is to be claimed now."""
        names = [name for name, receiver in self._busy.items() if receiver.held >= receiver.width]
        used_up = {standing for standing in SHARES if self._is_used_up(standing)}
        if used_up:
            # Those that were last heard of first: they are the likeliest to have something due.
            known = reversed(self._known.items())
            names += [name for name, receiver in known if receiver.standing in used_up]
        return list(dict.fromkeys(names))[:MOST_FULL]

    def take(self, held: Held) -> bool:
        """False where there is no place for it: it is to be given back."""
        name = held.message.receiver
        receiver = self._of(name)
        if self._is_used_up(receiver.standing):
            return False
        receiver.waiting.append(held)
        self.held += 1
        self._by_standing[receiver.standing] += 1
        self._busy[name] = receiver
        return True

    def due(self) -> list[Held]:
        """What is to be tried now, the receivers in turn; each counts as active from then on."""
        found: list[Held] = []
        turn = list(self._busy.values())
        while turn:
            turn = [one for one in turn if one.waiting and one.active < one.width]
            for receiver in turn:
                receiver.active += 1
                found.append(receiver.waiting.popleft())
        self.active += len(found)
        return found

    def late(self, now_s: float) -> list[Held]:
        """What has waited so long that it must not begin any more; nothing of it is held then."""
        late: list[Held] = []
        for name, receiver in list(self._busy.items()):
            while receiver.waiting and receiver.waiting[0].begin_by_s < now_s:
                late.append(receiver.waiting.popleft())
                self.held -= 1
                self._by_standing[receiver.standing] -= 1
            self._leave(name, receiver)
        return late

    def tried(self, held: Held, *, succeeded: bool) -> None:
        """It is not active any more, and takes its place until it is `settled`."""
        name = held.message.receiver
        receiver = self._busy[name]
        self._by_standing[receiver.standing] -= receiver.held
        receiver.active -= 1
        self.active -= 1
        receiver.standing = Standing.PROVEN if succeeded else Standing.FAILING
        receiver.width = min(self._most, receiver.width * 2) if succeeded else 1
        self._by_standing[receiver.standing] += receiver.held
        self._leave(name, receiver)

    def settled(self, count: int) -> None:
        """So many that were tried are written down."""
        self.held -= count

    def _leave(self, name: str, receiver: Receiver) -> None:
        if not receiver.held:
            self._busy.pop(name, None)
