"""Reads metrics as Prometheus does."""

import urllib.request

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    """Every sample by name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(registry: CollectorRegistry) -> Samples:
    return samples(generate_latest(registry).decode())


def scraped(port: int) -> Samples:
    """What a server on this machine answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return samples(answer.read().decode())


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))
