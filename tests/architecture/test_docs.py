"""Documents point at things that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "charts/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    targets = [t for t in _LINK.findall(page.read_text()) if "://" not in t]
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_readme_is_one_screen_of_what_two_commands_and_a_map() -> None:
    text = (ROOT / "README.md").read_text()
    for part in ("make demo", "make test", "stateDiagram-v2", "operator/queue_operator/"):
        assert part in text


def test_the_map_of_the_postgres_store_names_each_of_its_modules() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    _, table = text.split("| Question | Modules |\n", 1)
    named = re.findall(r"`(\w+)`", table.split("\n\n", 1)[0])
    folder = ROOT / "operator" / "queue_operator" / "backends" / "postgres"
    assert sorted(named) == sorted(path.stem for path in folder.glob("[!_]*.py"))
