"""Pauses and places on a shelf of jobs."""

from dataclasses import replace
from datetime import datetime

from queue_operator.backends.protocol import AHEAD_BOUND, Pause, Place, Topic
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.stored import Stored
from queue_operator.domain.states import ELIGIBLE


def put_pause(shelf: Shelf, pause: Pause, now: datetime) -> Pause:
    """The pause as it is stored."""
    known = {one.type: one.since for one in shelf.pauses(pause.namespace)}
    kept = replace(pause, since=known.get(pause.type, now))
    shelf.put_pause(kept)
    shelf.announce(Topic.PAUSE)
    return kept


def drop_pause(shelf: Shelf, namespace: str, type: str) -> bool:
    """Whether there was one."""
    ended = shelf.drop_pause(namespace, type)
    if ended:
        shelf.announce(Topic.PAUSE)
        shelf.announce(Topic.READY)
    return ended


def place_of(shelf: Shelf, one: Stored, now: datetime) -> Place:
    waits = one.job.state in ELIGIBLE
    ahead = shelf.ahead(one, now, AHEAD_BOUND + 1) if waits else 0
    paused = shelf.pauses(one.job.namespace)
    return Place(
        ahead=min(ahead, AHEAD_BOUND),
        ahead_is_exact=ahead <= AHEAD_BOUND,
        parents={edge.name: edge.outcome for edge in one.edges},
        pauses=tuple(pause for pause in paused if pause.type in ("", one.job.type)),
    )
