"""Some code reads every option that the table says works.

Covers config/options.txt.
"""

from pathlib import Path

import millstream
from millstream.config import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS, Status

SOURCE = Path(millstream.__file__).parent
NAMES = (*BROKER_OPTIONS, *TOPIC_OPTIONS, *GROUP_OPTIONS)


def names_in_source() -> set[str]:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return {name for name in NAMES if f'"{name}"' in text}


def with_synonyms(names: set[str]) -> set[str]:
    reached = set(names)
    for table in (GROUP_OPTIONS, TOPIC_OPTIONS, BROKER_OPTIONS):
        for name in reached & table.keys():
            reached |= set(table[name].synonyms)
    return reached


def test_an_option_that_works_is_used():
    used = with_synonyms(names_in_source())
    for table in (BROKER_OPTIONS, TOPIC_OPTIONS, GROUP_OPTIONS):
        working = {name for name, option in table.items() if option.status is Status.WORKS}
        assert working - used == set()
