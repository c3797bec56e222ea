"""Topic patterns match what Python's `re` matches, in linear time, and new names only."""

import re
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.broker.requests.pacing import at_once
from millstream.coordinators.consumer import pattern as pattern_module
from millstream.coordinators.consumer.pattern import STEP_NAMES_MAX, TopicMatches, TopicPattern
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


def _matches(matches: TopicMatches, pattern: str, version: int, *topics: str) -> list[str]:
    matching = matches.begin(pattern, version, topics, at_once)
    while matching.step(at_once):
        pass
    return matches.finish(matching, at_once)


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name that a pattern was compared with."""
    names: list[str] = []
    matches = TopicPattern.matches

    def note(pattern: TopicPattern, text: str) -> bool:
        names.append(text)
        return matches(pattern, text)

    monkeypatch.setattr(TopicPattern, "matches", note)
    return names


def test_internal_topics_match_as_in_kafka() -> None:
    names = ("__consumer_offsets", "orders", "other")
    assert _matches(TopicMatches(), ".*o.*s", 1, *names) == ["__consumer_offsets", "orders"]


def test_only_new_names_are_matched(matched: list[str]) -> None:
    matches = TopicMatches()
    assert _matches(matches, "a.*", 1, "a1", "b1") == ["a1"]
    matched.clear()
    assert _matches(matches, "a.*", 1, "a1", "b1") == ["a1"]
    assert matched == []
    assert _matches(matches, "a.*", 2, "a1", "b1", "b2", "a0") == ["a0", "a1"]
    assert sorted(matched) == ["a0", "b2"]


def test_names_that_are_gone_match_no_more_until_they_are_back() -> None:
    matches = TopicMatches()
    assert _matches(matches, "a.*", 1, "a1", "a2") == ["a1", "a2"]
    assert _matches(matches, "a.*", 2, "a2") == ["a2"]
    assert _matches(matches, "a.*", 3, "a2", "a1") == ["a1", "a2"]


def test_a_name_that_was_gone_while_nobody_asked_matches_once() -> None:
    matches = TopicMatches()
    assert _matches(matches, "a.*", 1, "a1") == ["a1"]
    assert _matches(matches, "b.*", 2, "b1") == ["b1"]
    assert _matches(matches, "b.*", 3, "b1", "a1") == ["b1"]
    assert _matches(matches, "a.*", 3, "b1", "a1") == ["a1"]


def test_topics_of_an_older_version_do_not_replace_newer_ones() -> None:
    matches = TopicMatches()
    assert _matches(matches, "a.*", 2, "a1", "a2") == ["a1", "a2"]
    late = matches.begin("a.*", 1, ["a1"], at_once)
    assert late.topics_version == 2
    assert _matches(matches, "a.*", 2, "a1", "a2") == ["a1", "a2"]


@pytest.mark.parametrize("bound", ["_MATCHES_KEPT_MAX", "_NAMES_KEPT_MAX"])
def test_matches_are_forgotten_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch, matched: list[str], bound: str
) -> None:
    monkeypatch.setattr(pattern_module, bound, 1)
    matches = TopicMatches()
    for pattern in ("a.*", ".*1"):
        assert _matches(matches, pattern, 1, "a1") == ["a1"]
    matched.clear()
    assert _matches(matches, ".*1", 1, "a1") == ["a1"]
    assert matched == []
    assert _matches(matches, "a.*", 1, "a1") == ["a1"]
    assert matched == ["a1"]


def test_a_step_matches_few_names(matched: list[str]) -> None:
    names = [f"a{number}" for number in range(3 * STEP_NAMES_MAX)]
    matching = TopicMatches().begin("a.*", 1, names, at_once)
    seen = 0
    while matching.step(at_once):
        assert len(matched) - seen <= STEP_NAMES_MAX
        seen = len(matched)
    assert len(matched) == len(names)
