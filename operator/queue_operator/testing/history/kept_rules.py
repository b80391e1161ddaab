"""Rules about what handlers leave with the queue: checkpoints, children, log lines."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from queue_operator.domain.states import is_terminal
from queue_operator.testing.history.calls import text_digest
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind, Record
from queue_operator.testing.history.violation import Rule, Violation

_Place = tuple[int, int]
"""Of a checkpoint among those of its job: the version of its lease, and its number."""


def checkpoints(history: History) -> Iterator[Violation]:
    """Whoever starts a job finds the last checkpoint that was acknowledged under an earlier lease,
    or one that was sent later: the answer to that may have been lost.
    """
    sent = _by_job(history, Kind.CHECKPOINT_SENT)
    acknowledged = _by_job(history, Kind.CHECKPOINT_ACKNOWLEDGED)
    for record in history.of(Kind.ASSIGNED, Kind.HANDLER_STARTED):
        stored = history.jobs.get(record.job_id)
        found = record.said.get("checkpoint")
        if stored is None or found is None or record.token not in stored.by_token:
            continue
        version = stored.by_token[record.token].version
        if _ended_before(stored, version):
            continue  # and its checkpoint was dropped
        places = _places(stored, sent.get(record.job_id, ()), version)
        states = {str(one.said["state"]) for one in acknowledged.get(record.job_id, ())}
        least = max((places[state][0] for state in states if state in places), default=None)
        if text := _wrong_start(str(found), places, least):
            around = history.around(record.job_id)
            yield Violation(Rule.CHECKPOINT_KEPT, record.job_id, text, around)


def _by_job(history: History, kind: Kind) -> Mapping[str, Sequence[Record]]:
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for record in history.of(kind):
        found[record.job_id].append(record)
    return found


def _ended_before(stored: StoredJob, version: int) -> bool:
    """Somebody had it run again although it had ended."""
    claim = [place for place, _ in stored.claims()]
    before = stored.transitions[: claim[version - 1]] if version <= len(claim) else ()
    return any(step.after is not None and is_terminal(step.after) for step in before)


def _places(
    stored: StoredJob, sent: Sequence[Record], version: int
) -> Mapping[str, tuple[_Place, _Place]]:
    """The first and the last place of each state that was sent under an earlier lease: one may be
    sent again under a newer one, when the handler went on.
    """
    found: dict[str, tuple[_Place, _Place]] = {}
    for record in sent:
        attempt = stored.by_token.get(record.token)
        if attempt is None or attempt.version >= version:
            continue
        place = attempt.version, int(str(record.said["number"]))
        first, last = found.get(str(record.said["state"]), (place, place))
        found[str(record.said["state"])] = min(first, place), max(last, place)
    return found


def _wrong_start(
    found: str, places: Mapping[str, tuple[_Place, _Place]], least: _Place | None
) -> str:
    if not found:
        return "" if least is None else "it starts from nothing, and a checkpoint was acknowledged"
    if found not in places:
        return "it starts from a checkpoint that no earlier attempt sent"
    if least is not None and places[found][1] < least:
        return "it starts from a checkpoint that is older than one that was acknowledged"
    return ""


def children(history: History) -> Iterator[Violation]:
    """A child that its parent was told of is there, is always the same, and has no double."""
    told: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for record in history.of(Kind.SPAWN_ACKNOWLEDGED):
        told[record.job_id, str(record.said["key"])].add(str(record.said["child"]))
    for (parent, key), names in told.items():
        for text in _wrong_child(history, parent, key, names):
            yield Violation(Rule.CHILD_ONCE, parent, text, history.around(parent))
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for record in history.of(Kind.SPAWN_SENT):
        asked[record.job_id].add(str(record.said["key"]))
    stored = Counter(one.job.spawned_by for one in history.jobs.values() if one.job.spawned_by)
    for parent, keys in asked.items():
        if stored[parent] > len(keys):
            text = f"it asked for {len(keys)} children, and the store has {stored[parent]}"
            yield Violation(Rule.CHILD_ONCE, parent, text, history.around(parent))


def _wrong_child(history: History, parent: str, key: str, names: set[str]) -> Iterator[str]:
    if len(names) > 1:
        yield f"its child {key} was acknowledged under several ids: {', '.join(sorted(names))}"
    for name in sorted(names):
        child = history.jobs.get(name)
        if child is None:
            yield f"its child {key} was acknowledged, and the store has no job {name}"
        elif child.job.spawned_by != parent:
            yield f"its child {key} is {name}, which belongs to {child.job.spawned_by or 'nobody'}"


def lines(history: History) -> Iterator[Violation]:
    """Lines may be dropped, but what is stored was said, under that token, and is there once."""
    said: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for record in history.of(Kind.LINE_SENT):
        number, text = int(str(record.said["number"])), str(record.said["text"])
        said[record.job_id, record.token][number] = text
    if not said:
        return  # of these workers nobody wrote it down
    for job_id, stored in history.jobs.items():
        tokens = {attempt.version: attempt.token for attempt in stored.attempts}
        for log in stored.logs:
            numbers = [line.number for line in log.lines]
            known = said[job_id, tokens.get(log.version, "")]
            strange = [
                one for one in log.lines if known.get(one.number) != text_digest(one.message)
            ]
            if strange:
                text = f"line {strange[0].number} of attempt {log.number} is not what it said"
            elif numbers != sorted(set(numbers)):
                text = f"the lines of attempt {log.number} are stored as {numbers}"
            else:
                continue
            yield Violation(Rule.LINES_KEPT, job_id, text, history.around(job_id))
