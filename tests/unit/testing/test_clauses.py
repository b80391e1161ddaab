"""Lists of clauses, and the markers of the tests that prove them."""

from pathlib import Path

import pytest

from queue_operator.testing.clauses import KINDS, MAX_CLAUSES, clauses, markers, pages, proves

ONE = clauses()[0].id


@pytest.mark.parametrize(
    "ids", [(), (ONE, ONE), tuple(f"p.s.pre.{n}" for n in range(MAX_CLAUSES + 1))]
)
def test_a_test_proves_one_to_five_different_clauses(ids: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="name 1 to 5 different clauses"):
        proves(*ids)


def test_a_mark_stays_with_its_test() -> None:
    def marked() -> int:
        return 7

    marked = proves(ONE, "p.s.pre.2")(marked)
    assert marked() == 7
    assert marked.__proves__ == (ONE, "p.s.pre.2")  # type: ignore[attr-defined]


def test_markers_are_found_without_running_anything(tmp_path: Path) -> None:
    module = tmp_path / "folder" / "module.py"
    module.parent.mkdir()
    module.write_text(
        "raise RuntimeError('imported')\n"
        "@proves('a.b.pre.1', 'a.b.pre.2')\n"
        "@other('a.b.pre.9')\n"
        "async def test_one(): ...\n"
        "class Group:\n"
        "    @proves('a.b.pre.1')\n"
        "    def test_two(self): ...\n"
    )
    (tmp_path / "data.txt").write_text("@proves('a.b.pre.3')")
    assert markers(tmp_path) == {
        "a.b.pre.1": ["folder/module.test_one", "folder/module.test_two"],
        "a.b.pre.2": ["folder/module.test_one"],
    }


def test_clauses_are_numbered_without_gaps_in_their_section() -> None:
    assert {page.name for page in pages()} == {
        "backend-api",
        "backend-sqlite",
        "external-api",
        "queue-api",
        "queue-semantics",
    }
    for page in pages():
        for section in page.sections:
            for short, kind in KINDS.items():
                ids = [c.id for c in page.clauses if (c.section, c.kind) == (section.id, kind)]
                wanted = range(1, len(ids) + 1)
                assert ids == [f"{page.name}.{section.id}.{short}.{n}" for n in wanted]


def test_texts_fit_into_a_table() -> None:
    assert [clause.id for clause in clauses() if "|" in clause.text or "\n" in clause.text] == []
