"""Ends the server of a chaos run that was killed before it could: reads until nobody can write."""

import shutil
import sys
from pathlib import Path

from queue_operator.devcluster import Postgres


def main() -> None:
    folder = Path(sys.argv[1])
    sys.stdin.read()
    if folder.exists():
        Postgres(folder, "127.0.0.1", 0).kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
