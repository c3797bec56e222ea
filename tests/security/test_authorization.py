import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model import Principal
from millstream.security.acl import (
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from millstream.security.authorization import (
    AclIndex,
    Client,
    Rules,
    all_operations,
    authorized_operations,
    parse_super_users,
)

TOPIC = ResourceType.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY
PREFIXED = PatternType.PREFIXED
NO_RULES = Rules()
Acl = tuple[ResourcePattern, Entry]


def index_of(acls: list[Acl]) -> AclIndex:
    index = AclIndex()
    for pattern in {pattern for pattern, _ in acls}:
        index.replace(pattern, {entry for found, entry in acls if found == pattern})
    return index


def ask(
    index: AclIndex,
    operation: Operation,
    name: str,
    *,
    principal: str = "User:ann",
    host: str = "10.0.0.1",
    rules: Rules = NO_RULES,
) -> bool:
    return index.is_allowed(rules, Client(Principal(principal), host), operation, TOPIC, name)


def allow(name: str, operation: Operation, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return ResourcePattern(TOPIC, name, pattern), Entry("User:ann", "*", operation, ALLOW)


def deny(name: str, operation: Operation, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return ResourcePattern(TOPIC, name, pattern), Entry("User:ann", "*", operation, DENY)


def test_nothing_is_allowed_without_acls() -> None:
    assert not ask(AclIndex(), Operation.READ, "a")


def test_literal_prefixed_and_wildcard() -> None:
    index = index_of([allow("a", Operation.READ), allow("p", Operation.READ, PREFIXED)])
    assert ask(index, Operation.READ, "a")
    assert not ask(index, Operation.READ, "ab")
    assert ask(index, Operation.READ, "p")
    assert ask(index, Operation.READ, "pq")
    assert not ask(index, Operation.READ, "q")
    assert ask(index_of([allow("*", Operation.READ)]), Operation.READ, "anything")


def test_deny_wins_wherever_it_stands() -> None:
    for denied in (
        deny("ab", Operation.READ),
        deny("a", Operation.ALL, PREFIXED),
        deny("*", Operation.READ),
    ):
        index = index_of([allow("ab", Operation.ALL), denied])
        assert not ask(index, Operation.READ, "ab")


def test_allowed_operations_imply_describe_and_denied_ones_do_not() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert ask(index_of([allow("a", operation)]), Operation.DESCRIBE, "a")
    assert not ask(index_of([allow("a", Operation.CREATE)]), Operation.DESCRIBE, "a")
    configs = index_of([allow("a", Operation.ALTER_CONFIGS)])
    assert ask(configs, Operation.DESCRIBE_CONFIGS, "a")
    assert not ask(configs, Operation.DESCRIBE, "a")
    both = index_of([allow("a", Operation.DESCRIBE), deny("a", Operation.READ)])
    assert ask(both, Operation.DESCRIBE, "a")


def test_super_users_are_above_all_acls() -> None:
    rules = Rules(super_users=parse_super_users("User:ann; User:CN=b,O=c;"))
    index = index_of([deny("a", Operation.ALL)])
    assert ask(index, Operation.READ, "a", rules=rules)
    assert ask(index, Operation.READ, "a", rules=rules, principal="User:CN=b,O=c")
    assert not ask(index, Operation.READ, "a", rules=rules, principal="User:c")


def test_a_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="'ann' is not a principal"):
        parse_super_users("ann")


def test_resources_without_acls_can_be_open_to_everybody() -> None:
    rules = Rules(allow_if_no_acl=True)
    index = index_of([allow("a", Operation.READ)])
    assert ask(index, Operation.WRITE, "b", rules=rules)
    assert not ask(index, Operation.WRITE, "a", rules=rules)
    assert not ask(index, Operation.READ, "a", rules=rules, principal="User:bob")


def test_a_replaced_pattern_leaves_nothing_behind() -> None:
    pattern = ResourcePattern(TOPIC, "p", PREFIXED)
    index = AclIndex()
    index.replace(pattern, {Entry("User:ann", "10.0.0.1", Operation.READ, ALLOW)})
    assert index.names_hosts
    assert ask(index, Operation.READ, "pq")
    index.replace(pattern, ())
    assert not index.names_hosts
    assert not ask(index, Operation.READ, "pq")
    assert len(index) == 0


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ([], False),
        ([allow("a", Operation.WRITE)], True),
        ([allow("*", Operation.ALL)], True),
        ([allow("a", Operation.READ)], False),
        ([allow("a", Operation.WRITE), deny("*", Operation.WRITE)], False),
        ([allow("ab", Operation.WRITE), deny("a", Operation.ALL, PREFIXED)], False),
        ([allow("a", Operation.WRITE), deny("a", Operation.WRITE)], False),
        ([allow("a", Operation.WRITE, PREFIXED), deny("a", Operation.WRITE)], True),
        ([allow("*", Operation.WRITE), deny("a", Operation.WRITE)], True),
    ],
)
def test_write_on_any_topic(acls: list[Acl], is_allowed: bool) -> None:
    client = Client(Principal("User:ann"), "10.0.0.1")
    found = index_of(acls).is_allowed_on_any(NO_RULES, client, Operation.WRITE, TOPIC)
    assert found is is_allowed


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ([], True),
        # Every other topic is open.
        ([deny("a", Operation.WRITE)], True),
        ([allow("a", Operation.READ), deny("b", Operation.ALL, PREFIXED)], True),
        # Every topic has an ACL.
        ([allow("*", Operation.READ)], False),
        ([allow("*", Operation.READ), allow("a", Operation.WRITE)], True),
        ([deny("*", Operation.WRITE), allow("a", Operation.WRITE)], False),
    ],
)
def test_write_on_any_topic_where_those_without_acls_are_open(
    acls: list[Acl], is_allowed: bool
) -> None:
    client = Client(Principal("User:ann"), "10.0.0.1")
    rules = Rules(allow_if_no_acl=True)
    assert index_of(acls).is_allowed_on_any(rules, client, Operation.WRITE, TOPIC) is is_allowed


def test_an_operation_on_all_topics_that_another_one_implies_is_allowed_on_any() -> None:
    client = Client(Principal("User:ann"), "10.0.0.1")
    everywhere = index_of([allow("*", Operation.READ)])
    assert everywhere.is_allowed_on_any(NO_RULES, client, Operation.DESCRIBE, TOPIC)
    here = index_of([allow("a", Operation.READ)])
    assert not here.is_allowed_on_any(NO_RULES, client, Operation.DESCRIBE, TOPIC)


def test_operations_as_bits() -> None:
    assert authorized_operations([]) == 0
    assert authorized_operations([Operation.READ, Operation.WRITE]) == 0b11000
    # What Apache Kafka answers for a topic and for the cluster without an authorizer.
    assert all_operations(TOPIC) == 3576
    assert all_operations(ResourceType.CLUSTER) == 8096


# -- compared with the definition, one ACL after the other -------------------------------

names = st.text("ab*", min_size=1, max_size=3)
principals = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
hosts = st.sampled_from(["*", "10.0.0.1", "10.0.0.0/30", "10.0.0.9"])
operations = st.sampled_from(list(Operation)[2:12])
patterns = st.builds(
    ResourcePattern,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    names,
    st.sampled_from([PatternType.LITERAL, PREFIXED]),
)
entries = st.builds(Entry, principals, hosts, operations, st.sampled_from([ALLOW, DENY]))


def naive(
    found: list[Acl], rules: Rules, principal: str, host: str, operation: Operation, name: str
) -> bool:
    if principal in rules.super_users:
        return True
    here = [
        entry
        for pattern, entry in found
        if pattern.resource_type is TOPIC
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type is PREFIXED
            else pattern.name in (name, "*")
        )
    ]
    mine = [
        entry
        for entry in here
        if entry.principal in (principal, "User:*")
        and (entry.host in ("*", host) or (entry.host.endswith("/30") and host[-1] in "12"))
    ]
    direct = {operation, Operation.ALL}
    implying = set(direct)
    if operation is Operation.DESCRIBE:
        implying |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        implying |= {Operation.ALTER_CONFIGS}
    if any(one.permission is DENY and one.operation in direct for one in mine):
        return False
    if any(one.permission is ALLOW and one.operation in implying for one in mine):
        return True
    return not here and rules.allow_if_no_acl


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(patterns, entries), max_size=8),
    st.builds(Rules, st.sampled_from([frozenset(), frozenset({"User:b"})]), st.booleans()),
    st.sampled_from(["User:a", "User:b", "Group:a"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.9"]),
    operations,
    names,
)
def test_the_index_decides_as_the_definition_does(
    found: list[Acl], rules: Rules, principal: str, host: str, operation: Operation, name: str
) -> None:
    got = ask(index_of(found), operation, name, principal=principal, host=host, rules=rules)
    assert got is naive(found, rules, principal, host, operation, name)


def test_a_decision_does_not_grow_with_the_number_of_acls() -> None:
    index = AclIndex()
    for number in range(5_000):
        entry = Entry("User:ann", "*", Operation.READ, ALLOW)
        index.replace(ResourcePattern(TOPIC, f"topic-{number}"), {entry})
    everybody = {Entry(f"User:{n}", "*", Operation.READ, ALLOW) for n in range(5_000)}
    index.replace(ResourcePattern(TOPIC, "*"), everybody)
    began = time.process_time()
    for number in range(1_000):
        assert ask(index, Operation.READ, f"topic-{number}")
    # A few microseconds each; a walk through all of them would take hundreds of times that.
    assert time.process_time() - began < 0.5
