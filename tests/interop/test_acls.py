"""The matrix of permissions, asked of Apache Kafka with its StandardAuthorizer: the table that
judges our node is right about Kafka, too.

Covers security/operations.py.
"""

import uuid
from collections.abc import Iterator

import pytest

from millstream.wire.apis import create_acls, create_topics, find_coordinator, metadata
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from millstream.wire.apis.push_telemetry import PushTelemetryRequest
from millstream.wire.vendor import KEYS_FROM
from tests.broker.security.test_matrix import (
    DENIALS,
    Case,
    acl,
    cases,
    codes_in,
    name_of,
    versions,
    with_topic_id,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.command_line import Ran, run_millstream
from tests.support.named_clients import ACLS
from tests.support.raw_client import RawClient
from tests.support.sasl_node import log_in_plain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# Kafka reads the records to see whether a produce is transactional; in the matrix they are none.
UNLIKE = "produce-TOPIC:WRITE+TRANSACTIONAL_ID:WRITE"
# Kafka offers telemetry only with a plugin that receives it.
NOT_OFFERED = {GetTelemetrySubscriptionsRequest, PushTelemetryRequest}
SAMPLE = [
    case
    for case in cases()
    if type(case.request).api.key < KEYS_FROM
    and type(case.request) not in NOT_OFFERED
    and name_of(case) != UNLIKE
]
LOGIN = "LOGIN"
PASSWORD = "not-a-secret"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    users = " ".join(f'user_u{number}="{PASSWORD}"' for number in range(len(SAMPLE)))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **ACLS,
        # The other listener, of the test and of the node itself.
        "super.users": "User:ANONYMOUS;User:root",
        "auto.create.topics.enable": "false",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            f'{module} user_nobody="{PASSWORD}" user_root="{PASSWORD}" {users};'
        ),
    }
    directory = tmp_path_factory.mktemp("kafka") / "data"
    with ApacheKafka(directory, settings=settings, listeners={LOGIN: "SASL_PLAINTEXT"}) as running:
        with RawClient(running.bootstrap) as root:
            topic = create_topics.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            root.ask(create_topics.CreateTopicsRequest(topics=[topic]), 5)
            for key_type in (0, 1):
                root.ask(find_coordinator.FindCoordinatorRequest(key="k", key_type=key_type), 3)
        yield running


@pytest.fixture(scope="module")
def topic_id(kafka: ApacheKafka) -> uuid.UUID:
    with RawClient(kafka.bootstrap) as root:
        wanted = metadata.MetadataRequestTopic(name="t")
        found = root.ask(metadata.MetadataRequest(topics=[wanted]), 12)
        return uuid.UUID(int=found.topics[0].topic_id.int)


@pytest.fixture(scope="module")
def newest(kafka: ApacheKafka) -> dict[int, int]:
    with RawClient(kafka.bootstrap) as root:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        return {one.api_key: one.max_version for one in root.ask(request, 3).api_keys}


def ask(kafka: ApacheKafka, user: str, case: Case, version: int) -> set[int]:
    with RawClient(kafka.addresses[LOGIN]) as client:
        assert log_in_plain(client, user, PASSWORD).error_code == 0
        return codes_in(client.ask(case.request, version)) & DENIALS


@pytest.mark.parametrize("number", range(len(SAMPLE)), ids=[name_of(case) for case in SAMPLE])
def test_kafka_decides_alike(
    kafka: ApacheKafka, topic_id: uuid.UUID, newest: dict[int, int], number: int
) -> None:
    case, user = SAMPLE[number], f"u{number}"
    with_topic_id(case.request, topic_id)
    with RawClient(kafka.bootstrap) as root:
        creations = [acl(f"User:{user}", needed) for needed in case.needs]
        answer = root.ask(create_acls.CreateAclsRequest(creations=creations), 3)
        assert codes_in(answer) <= {0}
    version = min(versions(case)[-1], newest[type(case.request).api.key])
    expected = set() if case.denied is None else {case.denied}
    assert ask(kafka, "nobody", case, version) == expected
    # Kafka's nodes learn of an ACL after the answer to its creation.
    wait_until(lambda: not ask(kafka, user, case, version), "it is allowed", seconds_max=20)
    assert ask(kafka, "root", case, version) == set()


def test_our_commands_work_there(kafka: ApacheKafka) -> None:
    def run(*arguments: str) -> Ran:
        ran = run_millstream(*arguments, "-b", kafka.bootstrap)
        assert ran.exit_code == 0, ran.errors
        return ran

    eve = ("--principal", "User:eve")
    run("acl", "add", *eve, "--topic", "logs", "--operation", "read", "--host", "10.0.0.1")
    wait_until(lambda: "User:eve" in run("acl", "list", "--topic", "logs").output, "it is listed")
    assert run("acl", "delete", "-y", *eve).errors == "deleted 1 ACLs\n"
    run("quota", "set", "--user", "eve", "producer_byte_rate=1024", "request_percentage=20")
    wait_until(lambda: "1024" in run("quota", "list").output, "it is listed")
    run("quota", "delete", "--user", "eve", "producer_byte_rate", "request_percentage")
