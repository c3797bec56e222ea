"""ACLs and quotas are about the user who logged in, whatever its client calls itself.

Covers broker/security/authorizer.py, broker/security/quota_use.py.
"""

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from millstream.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    AlteredQuotas,
    QuotaOperation,
)
from millstream.wire.apis.metadata import MetadataRequest
from tests.support.broker import Broker
from tests.support.named_clients import ACLS
from tests.support.raw_client import RawClient
from tests.support.sasl_node import (
    PASSWORD,
    PLAIN_USER,
    SCRAM_USER,
    librdkafka,
    log_in_plain,
    log_in_scram,
    sasl_settings,
)


def test_acls_and_quotas_of_users_who_logged_in() -> None:
    settings = {**sasl_settings(), **ACLS, "super.users": f"User:{SCRAM_USER}"}
    with Broker(settings=settings) as node:
        admin = AdminClient(librdkafka(node.bootstrap, "SCRAM-SHA-256", SCRAM_USER, PASSWORD))
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)

        def write() -> int | None:
            # A new one each time: librdkafka remembers for a while that it was denied.
            producer = Producer(
                {
                    **librdkafka(node.bootstrap, "PLAIN", PLAIN_USER, PASSWORD),
                    "client.id": SCRAM_USER,
                    "acks": 1,
                }
            )
            codes: list[int | None] = []
            producer.produce(
                "t",
                b"v",
                on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
            )
            assert producer.flush(30) == 0
            return codes[-1]

        assert write() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        binding = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            f"User:{PLAIN_USER}",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(20)
        assert write() is None
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert admin.describe_acls(everything).result(20) == [binding]
        assert admin.delete_acls([everything])[everything].result(20) == [binding]
        assert write() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        with RawClient(node.bootstrap) as root:
            assert log_in_scram(root, SCRAM_USER, PASSWORD).error_code == 0
            entity = AlteredQuotaEntity(entity_type="user", entity_name=PLAIN_USER)
            operation = QuotaOperation(key="request_percentage", value=0.0001, remove=False)
            entry = AlteredQuotas(entity=[entity], ops=[operation])
            root.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert root.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0
        with RawClient(node.bootstrap) as slow:
            assert log_in_plain(slow, PLAIN_USER, PASSWORD).error_code == 0
            assert slow.ask(MetadataRequest(topics=[]), 12).throttle_time_ms > 0
