"""Pauses, suspended jobs and places on a shelf of jobs."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from queue_operator.backends.intake import Name
from queue_operator.backends.protocol import AHEAD_BOUND, Pause, Place, Topic
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.stored import Stored
from queue_operator.domain import record
from queue_operator.domain.states import ELIGIBLE, TERMINAL


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


def suspend(shelf: Shelf, wanted: Mapping[Name, bool], now: datetime) -> set[Name]:
    """The names of those that are not there, or have ended."""
    left: set[Name] = set()
    for name, on in wanted.items():
        one = shelf.get(name)
        if one is None or one.job.state in TERMINAL:
            left.add(name)
            continue
        one.job = record.suspended(one.job, on, now)
        if not on:
            shelf.announce(Topic.READY)
    return left


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
