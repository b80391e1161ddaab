"""What a release before this one writes when it ends jobs: its statements, made of ours."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from queue_operator.backends.postgres import batch, completing, rows
from queue_operator.backends.postgres.migrate import Migration, migrations
from queue_operator.backends.sql import load

_PACKAGE: Final = "queue_operator.backends.postgres"
_NO_MESSAGE: Final = "heard AS (SELECT)"
_CALLBACK: Final = """
INSERT INTO callback (job_no, url)
SELECT job_no, url FROM unnest(%(job_nos)s::bigint[], %(urls)s::text[]) AS g(job_no, url)
WHERE %(receivers)s::bigint[] IS NOT NULL AND %(namespaces)s::text[] IS NOT NULL
  AND %(ids)s::text[] IS NOT NULL AND %(types)s::text[] IS NOT NULL
"""


_ALL: Final = tuple(migrations())


def shipped_before() -> list[Migration]:
    """Its migrations."""
    return [one for one in _ALL if one.name < "0020"]


@contextmanager
def older_release(*, tells: bool = False) -> Iterator[None]:
    """Everything in this process is of one that knows of no messages; or, where it `tells`, of one
    that writes them, and does not say so in the log.
    """
    heard = rows.HEARD if tells else _NO_MESSAGE
    with pytest.MonkeyPatch.context() as patch:
        for module, name, statement in (
            (completing, "_COMPLETE", "complete"),
            (rows, "_TO_FINAL", "move_to_final"),
            (rows, "_LATE_COMPLETE", "move_late_complete"),
        ):
            ours = load(_PACKAGE, statement, heard=heard)
            older, replaced = re.subn(
                r"lane_ids, untold\)(.*?)array_agg\(lane_id\), NULL\n",
                r"lane_ids)\1array_agg(lane_id)\n",
                ours,
                flags=re.DOTALL,
            )
            assert replaced == 1
            patch.setattr(module, name, older)
        patch.setattr(sys.modules[f"{_PACKAGE}.migrate"], "migrations", shipped_before)
        if not tells:
            patch.setattr(batch, "_CALLBACKS", _CALLBACK)
        yield
