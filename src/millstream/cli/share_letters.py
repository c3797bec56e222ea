"""Dead letters as commands read them from their topic."""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from millstream.cli.record_text import TextRecord
from millstream.cli.transfer import open_reading
from millstream.client.start_position import Range, parse_range
from millstream.coordinators.share import dead_letters
from millstream.model import TopicPartition

_READ_AT_ONCE: Final = 1_000

# By partition of the topic of letters: up to where the records were sent again.
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter; `where` and `offset` are those of the record that died."""

    where: TopicPartition
    offset: int
    deliveries: int | None
    reason: str
    written_ms: int
    letter: TextRecord

    @property
    def place(self) -> TopicPartition:
        """Where the letter is."""
        return TopicPartition(self.letter.topic, self.letter.partition)

    def is_before(self, offsets: Offsets) -> bool:
        return self.letter.offset < offsets.get(self.place, 0)

    @property
    def is_copy(self) -> bool:
        return self.letter.key is not None or self.letter.value is not None


def read_letters(bootstrap: str, topic: str, group_id: str) -> list[Letter]:
    """Those of one group, each partition in the order of its offsets."""
    span: Range = parse_range("beginning", now=datetime.now(UTC))
    found: list[Letter] = []
    with closing(open_reading(bootstrap, topic, span, is_bounded=True)) as reading:
        while not reading.is_over():
            for record in reading.take(_READ_AT_ONCE):
                one = _letter(record)
                if one is not None and _text(record, dead_letters.GROUP) == group_id:
                    found.append(one)
    return found


def _letter(record: TextRecord) -> Letter | None:
    """None for a record that is no letter."""
    try:
        where = TopicPartition(
            _text(record, dead_letters.TOPIC), int(_text(record, dead_letters.PARTITION))
        )
        offset = int(_text(record, dead_letters.OFFSET))
    except (KeyError, ValueError):
        return None
    headers = dict(record.headers)
    deliveries = headers.get(dead_letters.DELIVERY_COUNT) or b""
    return Letter(
        where,
        offset,
        int(deliveries) if deliveries.isdigit() else None,
        (headers.get(dead_letters.MESSAGE) or b"").decode(errors="replace"),
        record.timestamp_ms,
        record,
    )


def _text(record: TextRecord, name: str) -> str:
    """Raises KeyError."""
    return (dict(record.headers)[name] or b"").decode(errors="replace")
