import pytest

from millstream.broker.requests.routes import served
from millstream.errors import KafkaCode
from millstream.security.acl import OPERATIONS, Operation, ResourceType
from millstream.security.operations import TABLE, Denied, find_rule, request_rule
from millstream.wire.apis import declared


def test_every_api_that_is_served_has_a_row() -> None:
    missing = [api.name for key, api in served().items() if key not in TABLE]
    assert missing == []


def test_rows_are_named_as_their_apis() -> None:
    names = {api.key: api.name for api in declared()}
    wrong = {key: row.name for key, row in TABLE.items() if names.get(key, row.name) != row.name}
    assert wrong == {}


def test_each_version_has_at_most_one_rule_per_resource_and_step() -> None:
    for api in declared():
        row = TABLE.get(api.key)
        for version in range(api.min_listed, api.max_version + 1) if row else ():
            at = [
                (rule.resource_type, rule.step)
                for rule in row.rules
                if rule.first_version <= version <= rule.last_version
            ]
            assert len(at) == len(set(at)), (row.name, version)


def test_each_operation_exists_for_its_resource() -> None:
    for row in TABLE.values():
        for rule in row.rules:
            assert rule.operation in OPERATIONS[rule.resource_type], (row.name, rule)


def test_only_the_cluster_can_decide_a_whole_request() -> None:
    for row in TABLE.values():
        for rule in row.rules:
            if rule.denied is Denied.REQUEST:
                assert rule.resource_type is ResourceType.CLUSTER, row.name


def test_rules_are_found_by_version() -> None:
    old = find_rule(24, 3, ResourceType.TOPIC)
    assert (old.operation, old.code) == (Operation.WRITE, KafkaCode.TOPIC_AUTHORIZATION_FAILED)
    assert request_rule(24, 3) is None
    new = request_rule(24, 4)
    assert new is not None
    assert new.operation is Operation.CLUSTER_ACTION
    with pytest.raises(LookupError):
        find_rule(24, 4, ResourceType.TOPIC)
