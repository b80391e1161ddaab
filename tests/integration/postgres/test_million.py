"""What each call looks at when there are a million jobs."""

from collections.abc import Iterator

import pytest
from tests.integration.postgres import million
from tests.integration.postgres.calls import CASES
from tests.integration.postgres.watching import at_most, watched


@pytest.fixture(scope="module")
def million_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with million.database_with(million.JOBS, postgres_admin_dsn) as address:
        yield address


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", CASES)
async def test_a_call_looks_up_what_it_needs_by_index(
    million_dsn: str, name: str, plans: str
) -> None:
    case = CASES[name]
    async with watched(million_dsn, plans=plans) as (backend, seen):
        with at_most(seen, rows=case.rows, pages=case.pages, also_whole=case.also_whole):
            await case.call(backend)
    assert case.indexes - seen.indexes == set(), str(seen)
