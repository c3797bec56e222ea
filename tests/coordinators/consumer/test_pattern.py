"""Topic patterns match what Python's `re` matches, in linear time."""

import re
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.consumer.pattern import TopicPattern
from millstream.errors import KafkaCode, KafkaError

atoms = some.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "1", "[a-b1]", "(?:^)", "(?:$)"]
)
patterns = some.recursive(
    atoms,
    lambda inner: some.one_of(
        some.builds("({}){}".format, inner, some.sampled_from(["*", "+", "?", "{2}", "{0,2}", ""])),
        some.builds("{}{}".format, inner, inner),
        some.builds("(?:{}|{})".format, inner, inner),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=some.text("ab1._", max_size=8))
def test_it_matches_what_re_matches(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^orders$", "orders", "orders2"),
        ("(^orders.*)|(^pay$)", "pay", "xpay"),
        ("(^a|b)*", "ab", "ba"),
        ("orders|payments", "payments", "orderspayments"),
        (r"team-\w+\.v\d{1,2}", "team-x.v12", "team-x.v123"),
        ("(?i)Orders", "oRDERS", "order"),
        ("[a-]+", "a-a", "b"),
        ("a{2,}", "aaaa", "a"),
        ("x*?y", "xxy", "xx"),
        ("", "", "a"),
    ],
)
def test_examples(pattern: str, matching: str, other: str) -> None:
    compiled = TopicPattern(pattern)
    assert compiled.matches(matching)
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "[a", "a**", "*", "(?=a)", r"\u0041", "a{3,1}", "a{9999}", "[z-a]"]
    + ["a" * 1025, "(((a{99}){99}){99})", "(?P<n", "[[:nobody:]]", "\\"],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        TopicPattern(pattern)
    assert refused.value.code is KafkaCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", [r"[\x01-\x{ffff}]{200}", ".*" * 500, "(a|b)*a(a|b){100}"])
def test_memory_does_not_grow_with_what_a_pattern_could_match(pattern: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled = TopicPattern(pattern)
    for number in range(300):
        compiled.matches("ab" * (number % 100) + "b")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096


def test_a_pattern_that_would_take_years_with_backtracking_is_quick() -> None:
    pattern = TopicPattern("(a*)*(a|aa)+b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")
