"""Which versions a compatibility level compares, in which direction, and what it says then."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.registry.formats.table import ParsedSchema, compare
from millstream.registry.model import Compatibility


@dataclass(frozen=True, slots=True)
class Earlier:
    """A version that a new schema is compared with."""

    version: int
    schema: ParsedSchema


def incompatibilities(
    level: Compatibility, new: ParsedSchema, earlier: Sequence[Earlier]
) -> list[str]:
    """Why `new` may not follow these versions, which are in order; nothing if it may."""
    compared = earlier if level.is_transitive else earlier[-1:]
    messages: list[str] = []
    for one in reversed(compared):
        found = []
        if level.new_reads_old:
            found += compare(new, one.schema)
        if level.old_reads_new:
            found += compare(one.schema, new)
        if found:
            messages += [str(each) for each in found]
            messages.append(f"{{oldSchemaVersion: {one.version}}}")
            messages.append(f"{{oldSchema: '{one.schema.text}'}}")
            messages.append(f"{{compatibility: '{level}'}}")
    return messages
