import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millstream.errors import KafkaCode
from millstream.testing import Broker
from millstream.testing.faults import Faults, RequestFacts


def facts(api: str = "produce", *, client_id: str = "", topic: str = "orders") -> RequestFacts:
    return RequestFacts(api, client_id, lambda: [topic])


def test_a_rule_counts_and_ends() -> None:
    faults = Faults()
    rule = faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    chosen = [faults.choose(facts()) for _ in range(3)]
    assert chosen == [rule, rule, None]
    assert rule.applied == 2
    assert "produce: NOT_LEADER_OR_FOLLOWER, 2 times" in str(rule)


@pytest.mark.parametrize(
    ("request_facts", "matches"),
    [
        (facts(), True),
        (facts("fetch"), False),
        (facts(topic="other"), False),
        (facts(client_id="other"), False),
    ],
)
def test_a_rule_is_for_what_it_names(request_facts: RequestFacts, matches: bool) -> None:
    faults = Faults()
    faults.delay("PRODUCE", ms=5, topic="orders", client_id="")
    assert (faults.choose(request_facts) is not None) is matches


def test_chance_repeats_with_its_seed() -> None:
    def run(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.drop_connection(times=1000, p=0.3)
        return [faults.choose(facts()) is not None for _ in range(100)]

    assert run(1) == run(1)
    assert 10 < sum(run(1)) < 60


def test_an_unknown_error_is_refused() -> None:
    with pytest.raises(ValueError, match="no error named 'NO_SUCH'"):
        Faults().fail("Produce", error="NO_SUCH")


# -- with real clients -----------------------------------------------------------------


def test_a_producer_retries_what_may_pass() -> None:
    with Broker(topics={"orders": 1}) as broker:
        rule = broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
        producer = Producer({**broker.client_config(), "retry.backoff.ms": 10})
        producer.produce("orders", "value")
        assert producer.flush(20) == 0
        assert rule.applied == 2
        assert len(broker.topic("orders").records()) == 1


def test_an_error_that_does_not_pass_reaches_the_application() -> None:
    with Broker(topics={"orders": 1, "other": 1}) as broker:
        broker.faults.fail("Produce", error=KafkaCode.TOPIC_AUTHORIZATION_FAILED, topic="orders")
        with pytest.raises(KafkaException, match="authorization"):
            broker.topic("orders").produce(["value"])
        broker.topic("other").produce(["value"])
        assert broker.topic("orders").records() == []
        broker.faults.clear()
        broker.topic("orders").produce(["value"])


def test_connections_drop_and_clients_come_again() -> None:
    with Broker(topics={"orders": 1}) as broker:
        rule = broker.faults.drop_connection("Produce", times=1)
        producer = Producer({**broker.client_config(), "reconnect.backoff.ms": 10, "log_level": 0})
        producer.produce("orders", "value")
        assert producer.flush(20) == 0
        assert rule.applied == 1


def test_a_delay_is_a_delay() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.faults.delay("Metadata", ms=700)
        admin = AdminClient(broker.client_config())
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.3)
        assert "orders" in admin.list_topics(timeout=20).topics


def test_a_full_disk() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.faults.disk_full()
        producer = Producer(
            {**broker.client_config(), "message.timeout.ms": 500, "retry.backoff.ms": 50}
        )
        failed = []
        producer.produce("orders", "value", on_delivery=lambda error, _: failed.append(error))
        producer.flush(20)
        assert failed[0] is not None


def test_a_rule_that_could_never_apply_is_an_error() -> None:
    faults = Faults()
    with pytest.raises(ValueError, match="there is no request 'Prodduce'"):
        faults.fail("Prodduce", error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="p is between 0 and 1"):
        faults.drop_connection("Fetch", p=10)
    with pytest.raises(ValueError, match="ms is not below 0"):
        faults.delay("Fetch", ms=-5)
