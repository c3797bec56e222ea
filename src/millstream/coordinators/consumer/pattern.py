"""Patterns of topic names in the consumer protocol: RE2's syntax, as in Kafka.

A pattern matches whole names. One that is not valid is INVALID_REGULAR_EXPRESSION.
"""

from functools import lru_cache
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.patterns import WholePattern

# How many compiled patterns are kept.
_KEPT_MAX: Final = 32


class TopicPattern(WholePattern):
    """Matches whole names of topics."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        """Raises KafkaError if the pattern is invalid."""
        try:
            super().__init__(text)
        except ValueError as problem:
            raise KafkaError(
                KafkaCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text[:100]}` is not a valid regular expression: "
                f"{problem}.",
            ) from None


@lru_cache(maxsize=_KEPT_MAX)
def compile_pattern(text: str) -> TopicPattern:
    """Members of a group send the same pattern again and again."""
    return TopicPattern(text)
