import pytest

from millstream.errors import KafkaError
from millstream.security.acl import (
    Binding,
    BindingFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_binding,
    check_filter,
)

TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH


def entry(
    principal: str = "User:ann",
    host: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> Entry:
    return Entry(principal, host, operation, permission)


@pytest.mark.parametrize(
    ("wanted", "pattern", "is_match"),
    [
        (BindingFilter(), ResourcePattern(TOPIC, "a"), True),
        (BindingFilter(ResourceType.GROUP), ResourcePattern(TOPIC, "a"), False),
        (BindingFilter(TOPIC, "a"), ResourcePattern(TOPIC, "a", PREFIXED), True),
        (BindingFilter(TOPIC, "a", LITERAL), ResourcePattern(TOPIC, "a", PREFIXED), False),
        (BindingFilter(TOPIC, "ab", LITERAL), ResourcePattern(TOPIC, "*"), False),
        (BindingFilter(TOPIC, "ab", MATCH), ResourcePattern(TOPIC, "*"), True),
        (BindingFilter(TOPIC, "ab", MATCH), ResourcePattern(TOPIC, "a", PREFIXED), True),
        (BindingFilter(TOPIC, "ab", MATCH), ResourcePattern(TOPIC, "abc", PREFIXED), False),
        (BindingFilter(TOPIC, "ab", MATCH), ResourcePattern(TOPIC, "a"), False),
        (BindingFilter(TOPIC, None, MATCH), ResourcePattern(TOPIC, "a"), True),
    ],
)
def test_a_filter_selects_patterns(
    wanted: BindingFilter, pattern: ResourcePattern, is_match: bool
) -> None:
    assert wanted.matches_pattern(pattern) is is_match


def test_a_filter_selects_entries() -> None:
    pattern = ResourcePattern(TOPIC, "a")
    assert BindingFilter(principal="User:ann").matches(pattern, entry())
    assert not BindingFilter(principal="User:bob").matches(pattern, entry())
    assert not BindingFilter(host="10.0.0.1").matches(pattern, entry())
    assert not BindingFilter(operation=Operation.WRITE).matches(pattern, entry())
    assert not BindingFilter(permission=Permission.DENY).matches(pattern, entry())


def test_hosts_match_by_address_network_or_not_at_all() -> None:
    assert entry(host="*").is_for_host("10.0.0.1")
    assert entry(host="10.0.0.1").is_for_host("10.0.0.1")
    assert not entry(host="10.0.0.1").is_for_host("10.0.0.10")
    assert entry(host="10.0.0.0/24").is_for_host("10.0.0.1")
    assert not entry(host="10.0.0.0/24").is_for_host("10.0.1.1")
    assert entry(host="fd00::/8").is_for_host("fd12::1")
    assert not entry(host="fd00::/8").is_for_host("10.0.0.1")
    assert not entry(host="10.0.0.0/24").is_for_host("unix")


@pytest.mark.parametrize(
    ("pattern", "one", "problem"),
    [
        (ResourcePattern(ResourceType.ANY, "a"), entry(), "resource type ANY"),
        (ResourcePattern(TOPIC, "a", MATCH), entry(), "LITERAL or PREFIXED"),
        (ResourcePattern(TOPIC, ""), entry(), "is empty"),
        (ResourcePattern(ResourceType.CLUSTER, "other"), entry(), "kafka-cluster"),
        (ResourcePattern(TOPIC, "a"), entry("ann"), "not a principal"),
        (ResourcePattern(TOPIC, "a"), entry("User:"), "not a principal"),
        (ResourcePattern(TOPIC, "a"), entry(operation=Operation.ANY), "operation ANY"),
        (ResourcePattern(TOPIC, "a"), entry(permission=Permission.ANY), "ALLOW or DENY"),
        (ResourcePattern(TOPIC, "a"), entry(host=""), "host of an ACL is empty"),
        (ResourcePattern(TOPIC, "a"), entry(host="10.0.0.1/24"), "not a network"),
    ],
)
def test_bindings_that_cannot_exist_say_why(
    pattern: ResourcePattern, one: Entry, problem: str
) -> None:
    with pytest.raises(KafkaError, match=problem):
        check_binding(Binding(pattern, one))


def test_a_sound_binding_passes() -> None:
    check_binding(Binding(ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), entry()))
    check_binding(Binding(ResourcePattern(TOPIC, "*"), entry("User:*", host="10.0.0.0/8")))


def test_a_filter_with_an_unknown_number_is_refused() -> None:
    with pytest.raises(KafkaError, match="unknown Operation"):
        check_filter(BindingFilter(operation=Operation.UNKNOWN))
    check_filter(BindingFilter())
