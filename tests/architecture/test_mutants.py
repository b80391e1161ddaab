"""The tests notice mistakes: some of the listed mutants, drawn anew in every run. Set
QUEUE_OPERATOR_TEST_SEED to draw those of another run again; QUEUE_OPERATOR_TEST_FULL=1 takes all.
"""

import os
import random
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from mutants.listed import faults, mutants  # noqa: E402
from mutants.running import KILLED, baseline, judge_all  # noqa: E402

FULL = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
SAMPLE = 10
CLAUSES = 60
QUEUE_MUTANTS = 40
STORES = {"memory": 80, "sqlite": 20, "postgres": 30}


def test_the_list_names_what_there_is() -> None:
    assert faults(mutants()) == []


def test_the_list_is_long_enough() -> None:
    listed = mutants()
    assert len({one.clause for one in listed}) >= CLAUSES
    per_store = Counter(one.store for one in listed)
    assert {store: n for store, n in STORES.items() if per_store[store] < n} == {}
    pages = Counter(one.clause.partition(".")[0] for one in listed)
    assert pages["queue-api"] + pages["external-api"] >= QUEUE_MUTANTS


def test_a_random_sample_is_noticed(postgres_admin_dsn: str) -> None:
    # The server must be up for all of them; each makes databases of its own.
    assert postgres_admin_dsn
    seed = os.environ.get("QUEUE_OPERATOR_TEST_SEED") or str(random.SystemRandom().getrandbits(32))
    print(f"QUEUE_OPERATOR_TEST_SEED={seed}")
    sample = random.Random(seed).sample(mutants(), len(mutants()) if FULL else SAMPLE)  # noqa: S311
    assert baseline(sample) == []
    assert [one for one in judge_all(sample) if one.fate != KILLED] == []
