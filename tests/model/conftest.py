"""Two empty stores for each history, and how far the histories went."""

from collections.abc import Iterator

import pytest
from tests.conftest import migrated_database
from tests.model.walks import WALKED


@pytest.fixture(scope="session")
def model_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for the histories alone."""
    with migrated_database(postgres_admin_dsn, "model") as address:
        yield address


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for names, (steps, histories) in WALKED.items():
        terminalreporter.write_line(f"{names}: {steps} steps in {histories} histories")
