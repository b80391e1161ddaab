"""A Spark session for all tests, and for each a migrated database and a lake of its own."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.stage import EventLog, Stage

from queue_operator.backends.postgres.migrate import migrate
from queue_operator.pipeline.session import build_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session()
    yield session
    gateway: Any = session.sparkContext._gateway
    session.stop()
    # The JVM ends when its input does, which would otherwise be after the tests have.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)


@pytest.fixture
def stage(new_database: Callable[[], str], spark: SparkSession, tmp_path: Path) -> Iterator[Stage]:
    dsn = new_database()
    asyncio.run(migrate(dsn))
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Stage(dsn, tmp_path / "lake", spark, EventLog(connection))
