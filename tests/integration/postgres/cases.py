"""What each call may look at, on jobs as `million.py` makes them."""

import itertools
import uuid
from dataclasses import dataclass

from tests.integration.postgres import big, calls, million, telling

from queue_operator.domain.job import Demand

# What was deleted once cannot be deleted again.
_NEXT = itertools.count()


@dataclass(frozen=True, slots=True)
class Case:
    """`rows` and `pages` bound what the call may look at; `also_whole` are longer tables that
    it reads from end to end on purpose. What comes `first` is not watched.
    """

    call: calls.Call
    indexes: set[str]
    rows: int
    pages: int
    also_whole: frozenset[str] = frozenset()
    first: calls.Call = calls.nothing


CASES = {
    # First two for each lane, of which nothing is known, then those of the claim itself.
    "claim from 200 lanes": Case(
        lambda backend: big.take(backend, million.BIG, 50),
        {"ready_claim", "job_pkey"},
        4000,
        4500,
    ),
    "claim from one lane": Case(
        lambda backend: big.take(backend, million.SOLO, 50),
        {"ready_claim", "job_pkey"},
        500,
        2000,
    ),
    "complete": Case(calls.complete, {"lease_pkey", "job_pkey"}, 1500, 6000),
    "fail": Case(calls.fail, {"lease_pkey", "job_pkey"}, 2000, 8000),
    "submit": Case(calls.submit, set(), 300, 6000),
    "heartbeat": Case(calls.renew, {"lease_pkey", "job_namespace_id_id_key"}, 1200, 4000),
    "heartbeat of a session from elsewhere": Case(
        calls.renew_elsewhere,
        {"lease_pkey", "ready_pkey", "final_pkey", "attempt_pkey"},
        5000,
        16000,
    ),
    "submit to a new lane": Case(
        lambda backend: backend.enqueue_jobs(big.new_jobs(1, tags=frozenset({uuid.uuid4().hex}))),
        set(),
        2000,
        6000,
    ),
    "submit with keys": Case(calls.submit_with_key, {"idempotency_pkey"}, 300, 3000),
    "dependencies": Case(
        calls.run_a_chain,
        {"dependency_pkey", "dependency_by_parent", "parent_result_pkey"},
        6000,
        20000,
    ),
    "webhooks": Case(
        telling.tell_of_ends,
        {
            *(
                "callback_pkey",
                "webhook_batch_pkey",
                "webhook_message_pkey",
                "webhook_due",
                "webhook_later",
            ),
            *("webhook_listed", "webhook_by_job", "webhook_ended"),
        },
        4000,
        12000,
    ),
    "custom resources": Case(
        calls.mirror,
        {"job_by_uid", "ready_mirrored"},
        6500,
        3000,
        # The changes not yet told are a queue of their own.
        also_whole=frozenset({"mirror_outbox", "ready"}),
    ),
    "statuses": Case(
        calls.look_at_statuses,
        {"job_namespace_id_id_key", "job_pkey", "ready_pkey", "lease_pkey", "final_pkey"},
        1000,
        3000,
    ),
    "another priority": Case(
        calls.give_another_priority,
        {"job_namespace_id_id_key", "lane_pkey", "ready_pkey", "job_pkey"},
        1000,
        3000,
    ),
    "cancel what runs": Case(calls.cancel_running, {"lease_cancelling", "lease_pkey"}, 500, 3000),
    "late outcomes": Case(
        calls.complete_late,
        {"lease_check_due", "lease_pkey", "ready_pkey", "attempt_pkey", "final_pkey"},
        3000,
        6000,
    ),
    "what assignees have": Case(
        calls.what_assignees_have,
        {"lease_check_due", "lease_pkey", "job_pkey", "lane_pkey"},
        3000,
        4000,
    ),
    "retry now": Case(
        calls.retry_more_urgently, {"job_namespace_id_id_key", "final_pkey", "job_pkey"}, 1000, 4000
    ),
    "pulse": Case(
        lambda backend: backend._pulse._beat(),
        # A thousand are found, made due, and passed by to see what is left.
        {"ready_stage", "ready_pkey", "arrival_by_xid"},
        3100,
        20000,
        # The first in the index's order is the answer.
        also_whole=frozenset({"ready"}),
    ),
    "new names": Case(calls.new_names, {"namespace_name_key", "job_type_name_key"}, 500, 1500),
    "glance": Case(
        lambda backend: backend.eligible_for(
            [Demand(assignee_id="w", limit=1, namespace=million.BIG)]
        ),
        {"ready_claim"},
        3000,
        6000,
    ),
    "claim for several filters": Case(
        calls.claim_for_several, {"ready_claim", "job_pkey"}, 4000, 12000
    ),
    "progress": Case(calls.report_progress, {"lease_pkey", "job_namespace_id_id_key"}, 400, 2000),
    "checkpoint": Case(
        calls.checkpoint_and_claim_again,
        {"lease_pkey", "job_namespace_id_id_key", "checkpoint_pkey"},
        5000,
        12000,
    ),
    "spawn": Case(
        calls.spawn_twice,
        {"lease_pkey", "job_namespace_id_id_key", "spawned_pkey"},
        4000,
        8000,
    ),
    "log": Case(
        calls.log,
        {"lease_pkey", "final_pkey", "job_namespace_id_id_key", "log_chunk_pkey"},
        4000,
        8000,
    ),
    "get_job": Case(
        calls.get_ended_and_waiting,
        {"job_namespace_id_id_key", "ready_pkey", "lease_pkey", "final_pkey"},
        100,
        300,
    ),
    "place": Case(
        calls.places,
        {
            "job_namespace_id_id_key",
            "ready_pkey",
            "lane_namespace_id_type_id_priority_tags_key",
            "ready_claim",
            "ready_stage",
        },
        90_000,
        20_000,
    ),
    "pause": Case(calls.pause_and_go_on, {"pause_pkey", "ready_claim"}, 4000, 4000),
    "suspend": Case(
        calls.suspend_and_go_on,
        {"job_namespace_id_id_key", "ready_pkey", "lease_pkey", "suspension_pkey"},
        5000,
        12000,
    ),
    "history": Case(
        calls.histories, {"job_namespace_id_id_key", "attempt_pkey", "transition_pkey"}, 100, 400
    ),
    "stats": Case(
        lambda backend: backend.get_job_stats([], namespace=million.BIG),
        {"namespace_count_pkey", "count_delta_by_xid"},
        4000,
        6000,
    ),
    "roll up": Case(calls.roll_up, {"job_event_by_xid", "lane_pkey"}, 6000, 20000),
    "figures": Case(
        # All that waits for something else is counted one by one, in an index alone.
        calls.figures,
        {
            *("kind_count_pkey", "lane_count_pkey", "lane_waiting_pkey", "lane_pkey"),
            *("ready_claim", "ready_undue"),
        },
        150_000,
        60_000,
        also_whole=frozenset({"lane"}),
    ),
    "follow": Case(
        calls.follow,
        {"job_event_by_xid", "job_pkey", "lane_pkey", "job_namespace_id_id_key"},
        4000,
        20000,
    ),
    "count figures": Case(calls.count_figures, {"job_event_by_xid", "lane_pkey"}, 6000, 20000),
    "stats of a window": Case(
        # All that is not due is counted one by one, in an index alone.
        calls.window,
        {
            *("kind_count_pkey", "lane_waiting_pkey", "ready_later"),
            *("job_event_by_xid", "roll_up_pkey"),
        },
        100_000,
        30_000,
    ),
    "find out where jobs wait": Case(
        calls.begin_anew, {"lane_waiting_pkey", "count_delta_by_xid", "lane_pkey"}, 2000, 4000
    ),
    # Each of what the other cases told, some 600 after forty rounds: found, picked, and removed.
    "forget arrivals": Case(calls.forget_arrivals, {"arrival_by_xid"}, 2000, 2000),
    "forget a lane": Case(
        calls.forget_a_lane, {"lane_count_pkey", "count_delta_by_xid"}, 2000, 9000
    ),
    "forget a type": Case(
        calls.forget_a_type,
        {"lane_namespace_id_type_id_priority_tags_key"},
        2000,
        4000,
        also_whole=frozenset({"roll_up"}),
    ),
    "series": Case(
        calls.series, {"job_event_by_xid", "roll_up_pkey", "roll_up_latency_pkey"}, 100_000, 30_000
    ),
    "the oldest that are due": Case(
        lambda backend: backend.oldest_due(namespace=million.BIG),
        {"lane_waiting_pkey", "lane_pkey", "ready_claim"},
        14000,
        25000,
    ),
    "quotas": Case(calls.quotas, {"namespace_count_pkey", "token_bucket_pkey"}, 4000, 6000),
    "stats of a tag": Case(
        lambda backend: backend.get_job_stats([million.RARE], namespace=million.BIG),
        {"lane_count_pkey", "count_delta_by_xid"},
        1500,
        2000,
    ),
    "depths": Case(
        lambda backend: backend.queue_depth(),
        {"kind_count_pkey", "lane_waiting_pkey", "lane_pkey", "ready_claim"},
        14000,
        25000,
    ),
    "sweep": Case(
        calls.sweep,
        {"lease_check_due", "lease_check_fresh", "lease_pkey"},
        2000,
        4000,
        # Where a name seems to be of no use any more, in case something is still counted by it.
        also_whole=frozenset({"roll_up"}),
    ),
    "look at what nobody told of": Case(
        calls.look_for_overlooked, {"arrival_by_xid", "ready_pkey"}, 15000, 3000
    ),
    "stage": Case(
        # A thousand are found, made due, and passed by to see what is left.
        lambda backend: backend._staging.stage(),
        {"ready_stage", "ready_pkey"},
        3100,
        20000,
    ),
    "cancel by tag": Case(
        lambda backend: backend.cancel_jobs([million.RARE], [], namespace=million.BIG),
        {"job_by_lane", "ready_claim", "ready_undue", "ready_pkey", "lease_pkey", "final_pkey"},
        7000,
        3000,
    ),
    "cancel by id": Case(
        lambda backend: backend.cancel_jobs([], big.ids(700_000, 20), namespace=million.BIG),
        {"job_namespace_id_id_key", "ready_pkey", "lease_pkey", "final_pkey"},
        500,
        2000,
    ),
    "delete": Case(
        lambda backend: backend.delete_jobs(
            [], big.ids(500_000 + 20 * next(_NEXT), 20), namespace=million.BIG
        ),
        {"job_namespace_id_id_key", "final_pkey", "attempt_pkey", "transition_pkey"},
        600,
        2000,
    ),
    "clean up": Case(
        calls.clean_up,
        {"final_done", "final_pkey", "job_pkey", "attempt_pkey", "transition_pkey"},
        4000,
        12000,
    ),
    "prune events": Case(
        lambda backend: backend.prune_events(86_400.0),
        {"job_event_pkey", "event_pruned_pkey"},
        600,
        600,
        # It would roll up whatever the cases before it have left.
        first=calls.roll_up,
    ),
    "events": Case(
        lambda backend: backend.read_events(after=0, limit=100), {"job_event_pkey"}, 110, 300
    ),
}
