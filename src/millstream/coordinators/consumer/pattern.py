"""Patterns of topic names in the consumer protocol: RE2's syntax, as in Kafka.

RE2 matches in time linear in the name and in bounded memory, whatever the pattern. Python's
own `re` tries alternatives one after the other, and a client could keep the node busy for
hours.
"""

from functools import lru_cache
from typing import Final

from millstream.errors import KafkaCode, KafkaError

PATTERN_LENGTH_MAX: Final = 1024
# The memory for one compiled pattern with its tables, and how many are kept.
_PATTERN_BYTES_MAX: Final = 1 << 19
_KEPT_MAX: Final = 32


class TopicPattern:
    """Compiled once; matches whole names."""

    def __init__(self, text: str) -> None:
        """Raises KafkaError if the pattern is invalid."""
        # Imported here: most nodes never see a pattern.
        import re2

        if len(text) > PATTERN_LENGTH_MAX:
            raise _invalid(text, f"longer than {PATTERN_LENGTH_MAX} characters")
        options = re2.Options()
        options.max_mem = _PATTERN_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            problem = error.args[0]
            raise _invalid(
                text, problem.decode("utf-8", "replace") if isinstance(problem, bytes) else problem
            ) from None

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


@lru_cache(maxsize=_KEPT_MAX)
def compile_pattern(text: str) -> TopicPattern:
    """Members of a group send the same pattern again and again."""
    return TopicPattern(text)


def _invalid(text: str, problem: str) -> KafkaError:
    return KafkaError(
        KafkaCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{text[:100]}` is not a valid regular expression: {problem}.",
    )
