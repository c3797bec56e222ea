"""What Spark needs of a checkpoint to repeat a batch, as texts that can be kept elsewhere.

Before a batch has any effect Spark has written where it ends (`offsets/N`), and that the batch
before is done (`commits/N-1`). With these, the file before, and the id of the query (`metadata`),
a checkpoint of another machine begins with that very batch. There are no other files, because the
query has none of Spark's stateful operators.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Carried = Mapping[str, str]

_METADATA: Final = "metadata"


def read_checkpoint(folder: Path, number: int) -> dict[str, str]:
    """While that batch is at work."""
    needed = [_METADATA, f"offsets/{number}"]
    if number:
        needed += [f"offsets/{number - 1}", f"commits/{number - 1}"]
    return {name: (folder / name).read_text() for name in needed}


def write_checkpoint(folder: Path, carried: Carried) -> None:
    """In place of what is there: a batch that was not kept has had no effect."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in carried.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
