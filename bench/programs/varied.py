"""Jobs of several types and priorities in all nine states, and searches for each of them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bench.programs.sample import Kind
from bench.programs.stores import job_id
from bench.programs.tag_sets import of_job
from queue_operator.backends.protocol import SearchOrder
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import Backoff
from queue_operator.domain.views import Phase

Filters = Mapping[str, Any]

TYPES: Final = 5
RARE: Final = "rare"
APART_S: Final = 10
"""So that a million jobs were submitted within half an hour, and five within three."""
_PRIORITIES: Final = tuple(Priority)
_RARE_NUMBER: Final = 4_321
_PARENT: Final = 257
_DAY_S: Final = 86_400.0
_LONG: Final = Backoff(initial_delay_s=_DAY_S, max_delay_s=_DAY_S)


def varied_job(number: int, payload: bytes) -> Job:
    """One in fifty is delayed, one in a hundred waits for one of those."""
    type_ = RARE if number == _RARE_NUMBER else f"type-{number // 1000 % TYPES}"
    tags = frozenset(tag.replace("-", "=") for tag in of_job(number))
    return Job(
        id=job_id(number),
        type=type_,
        payload=payload,
        tags=tags,
        priority=_PRIORITIES[number % len(_PRIORITIES)],
        max_attempts=1 if number % 7 == 0 else 4,
        backoff=_LONG,
        delay_s=_DAY_S if number % 50 == _PARENT % 50 else None,
        depends_on=(job_id(_PARENT),) if number % 100 == 13 and number > _PARENT else (),
    )


VARIED: Final = Kind(varied_job, lease_ttl_s=_DAY_S, apart_s=APART_S)
"""Nothing happens to them by itself while they are asked for."""


def searches(newest: datetime, copies: int) -> dict[str, Filters]:
    """Every filter and order alone, and some mixes, for jobs that were submitted until then."""

    def ago(share: float) -> str:
        back = timedelta(seconds=APART_S * copies * share)
        return (newest.astimezone(UTC) - back).isoformat()

    region, exact = {"region": "1"}, {"region": "1", "size": "3", "kind": "2"}
    one_type, high = [f"type-{TYPES - 1}"], ["HIGH"]
    ended_badly = [Phase.FAILED, Phase.DEAD_LETTER]
    return {
        **{f"order_{order.lower()}": {"order": order} for order in SearchOrder},
        "types": {"types": one_type},
        "rare_type": {"types": [RARE]},
        "no_type": {"types": ["none-such"]},
        **{f"state_{phase.lower()}": {"states": [phase]} for phase in Phase},
        "states": {"states": ended_badly},
        "priorities": {"priorities": high},
        "tag": {"tags": region},
        "tags": {"tags": exact},
        "created_after": {"created_after": ago(0.1)},
        "created_before": {"created_before": ago(0.9)},
        "created_between": {"created_after": ago(0.6), "created_before": ago(0.5)},
        "updated_after": {"updated_after": ago(0.1)},
        "type_and_state": {"types": one_type, "states": [Phase.COMPLETED]},
        "tags_and_state": {"tags": exact, "states": [Phase.RUNNING]},
        "state_and_created": {"states": ended_badly, "created_after": ago(0.5)},
        "state_by_update": {"states": [Phase.COMPLETED], "order": SearchOrder.UPDATED_DESC},
        "all_of_them": {
            "types": one_type,
            "states": [Phase.COMPLETED, *ended_badly],
            "priorities": high,
            "tags": region,
            "created_after": ago(0.9),
            "updated_after": ago(0.8),
        },
    }
