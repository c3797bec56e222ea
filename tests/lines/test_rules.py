"""Rules travel to workers as JSON."""

from millstream.lines.rules import LineRules, SourceRule
from tests.lines.samples import rules


def test_rules_are_the_same_after_their_journey() -> None:
    sources = (
        SourceRule("a/*", "json"),
        SourceRule("b?", function="module:name"),
        SourceRule("*", patterns=("<time> <level> <message>", "<time> <message>")),
    )
    sent = rules(sources=sources, mask=("user",))
    assert LineRules.from_json(sent.to_json()) == sent


def test_a_rule_matches_whole_names() -> None:
    rule = SourceRule("web-?/*.log", patterns=("<time>",))
    assert rule.decides
    assert rule.matches("web-1/a.log")
    assert not rule.matches("web-1/a.log.1")
    assert not SourceRule("*").decides
