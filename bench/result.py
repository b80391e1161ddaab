"""One measured line of a run, and the file that holds them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

Setting = str | int | float


@dataclass(slots=True)
class Result:
    """What one system did in one scenario. `metrics` has the unit at the end of each name;
    `settings` says how it was run.
    """

    scenario: str
    system: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def write(path: Path, results: Sequence[Result]) -> None:
    """A list of objects, as `read` takes it."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


def read(path: Path) -> list[Result]:
    """Raises ValueError when the file is not one of `write`."""
    try:
        return [Result(**entry) for entry in json.loads(path.read_text())]
    except TypeError as error:
        raise ValueError(f"{path} is no list of results: {error}") from None
