"""What a run says while it goes on, and what its processes said."""

import re
from collections.abc import Callable
from pathlib import Path

Tell = Callable[[str], None]
# Handlers that fail on purpose leave one too, below the line of their attempt.
_SURPRISE = re.compile(
    r"^(?!.* queue_operator\.worker\.attempts: ).*\nTraceback \(most recent", re.M
)


def surprises(folder: Path) -> list[str]:
    """Errors that no part had reckoned with leave a trace in what its process says."""
    said = [(path, path.read_text()) for path in sorted(folder.glob("*.out"))]
    return [f"{path} has a traceback" for path, text in said if _SURPRISE.search(text)]
