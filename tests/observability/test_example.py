"""What the example and its guide tell is so."""

from pathlib import Path
from typing import Final

import yaml

from observability.incident import FAULTS

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLE: Final = ROOT / "examples" / "04-observability"
IMAGES: Final = ROOT / "docs" / "guides" / "images"
LARGEST: Final = 150 * 1024


def test_each_fault_has_a_picture_that_is_small_and_shown() -> None:
    text = (EXAMPLE / "README.md").read_text()
    for fault in FAULTS:
        picture = IMAGES / f"incident-{fault.name}.png"
        assert picture.stat().st_size <= LARGEST
        assert f"images/{picture.name}" in text


def test_the_manifests_are_jobs_that_the_example_has_a_handler_for() -> None:
    handlers = (EXAMPLE / "handlers.py").read_text()
    for name in ("failing-mail", "slow-picture"):
        job = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text())
        assert job["kind"] == "QueueJob"
        assert f'handler("{job["spec"]["type"]}")' in handlers
        assert f"{name}.yaml" in (EXAMPLE / "README.md").read_text()
