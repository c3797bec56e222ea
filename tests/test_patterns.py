"""What `tests/coordinators/consumer/test_pattern.py` does not cover: the problem is told."""

import pytest

from millstream.patterns import PATTERN_LENGTH_MAX, WholePattern


def test_a_pattern_matches_whole_texts() -> None:
    assert WholePattern("a|ab").matches("ab")
    assert not WholePattern("a").matches("ab")


@pytest.mark.parametrize("text", ["(", "[a", "a" * (PATTERN_LENGTH_MAX + 1), r"(a)\1"])
def test_an_invalid_pattern_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        WholePattern(text)
