"""For files whose records are blocks of lines: how a block begins, and a pattern for it.

In such a file a time ends its line. The text before a time, if it is the first of its kind and
comes again, begins a block. A proposal is for a person to look at and to edit.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.lines._patterns_pure import read_line
from millstream.lines.line_patterns import compile_pattern
from millstream.lines.suggesting import cleaned, escaped, find_time

_LINES_MAX: Final = 5000
# One may be a chance.
_BLOCKS_MIN: Final = 2
_SHARE_MIN: Final = 0.9


@dataclass(frozen=True, slots=True)
class BlockSuggestion:
    # With it the first line of every block begins.
    first_line: str
    pattern: str


def has_times(lines: Sequence[bytes]) -> bool:
    """Whether any of them has something that looks like a time."""
    return any(find_time(cleaned(line).decode()) for line in lines[:_LINES_MAX])


def suggest_blocks(lines: Sequence[bytes], *, record_us: int) -> BlockSuggestion | None:
    texts = [cleaned(line).decode() for line in lines[:_LINES_MAX]]
    fields: dict[str, str] = {}
    begins: Counter[str] = Counter()
    whole_count = 0
    for text in texts:
        found = find_time(text)
        if found is None:
            continue
        start, end, field = found
        if text[end:].strip():
            whole_count += 1
        elif start > 0:
            begins[text[:start]] += 1
            fields.setdefault(text[:start], re.sub(" +", " ", field))
    # Then lines are records, of which some happen to say nothing behind their time.
    if 2 * whole_count > len(texts):
        return None
    for begin, count in begins.items():
        pattern = f"{escaped(begin)}{fields[begin]}\n<message>"
        if count >= _BLOCKS_MIN and _reads_most(pattern, _blocks(texts, begin), record_us):
            return BlockSuggestion(begin, pattern)
    return None


def _blocks(texts: Sequence[str], begin: str) -> list[str]:
    blocks: list[list[str]] = []
    for text in texts:
        if text.startswith(begin):
            blocks.append([text])
        elif blocks:
            blocks[-1].append(text)
    return ["\n".join(block) for block in blocks]


def _reads_most(pattern: str, blocks: Sequence[str], record_us: int) -> bool:
    steps = compile_pattern(pattern)
    read = sum(read_line([steps], block.encode(), record_us) is not None for block in blocks)
    return read >= _SHARE_MIN * len(blocks)
