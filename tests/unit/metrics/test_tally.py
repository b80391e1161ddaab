"""Our histogram shows what prometheus_client's own would."""

import pytest
from prometheus_client import CollectorRegistry, Histogram
from tests.unit.metrics import exposition

from queue_operator.metrics.registry import WAIT
from queue_operator.metrics.tally import TallyHistogram

OBSERVED = (0.0, 0.005, 0.0051, 0.3, 60, 86400, 86401, 1e9)


def shown(registry: CollectorRegistry) -> exposition.Samples:
    """All samples but the time a series was made, which ours does not tell."""
    samples = exposition.of(registry).items()
    return {key: value for key, value in samples if not key[0].endswith("_created")}


def test_it_shows_what_the_librarys_shows() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = TallyHistogram(WAIT, ours)
    histogram = Histogram(WAIT.name, WAIT.help, WAIT.labels, buckets=WAIT.buckets, registry=theirs)
    for labels in (("ns", "mail"), ("other", "x")):
        for value in OBSERVED:
            tally.of(*labels).observe(value)
            histogram.labels(*labels).observe(value)
    assert shown(ours) == shown(theirs)
    assert len(shown(ours)) > 2 * len(WAIT.buckets)


def test_a_name_cannot_be_registered_twice() -> None:
    registry = CollectorRegistry()
    TallyHistogram(WAIT, registry)
    with pytest.raises(ValueError, match="Duplicated"):
        TallyHistogram(WAIT, registry)
