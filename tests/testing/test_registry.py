import pytest

from millstream.testing import Broker
from millstream.testing.registry import RegistryThread
from tests.support.rest_client import RestClient


def test_a_broker_with_a_registry_keeps_its_address_and_schemas() -> None:
    with Broker(registry=True) as broker:
        url = broker.registry_url
        assert RestClient(url).register("s", '"int"').body == {"id": 1}
        broker.stop()
        broker.start()
        assert broker.registry_url == url
        assert RestClient(url).get("/subjects").body == ["s"]


def test_a_snapshot_has_the_schemas_of_its_moment() -> None:
    with Broker(registry=True) as broker:
        rest = RestClient(broker.registry_url)
        rest.register("before", '"int"')
        snapshot = broker.snapshot()
        rest.register("after", '"int"')
        broker.restore(snapshot)
        assert rest.get("/subjects").body == ["before"]


def test_the_registry_logs_in_to_a_secured_broker() -> None:
    with Broker(registry=True, security="sasl_ssl") as broker:
        assert RestClient(broker.registry_url).register("s", '"int"').body == {"id": 1}


def test_a_broker_without_a_registry_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match="registry=True"):
        _ = Broker().registry_url


def test_the_fixture_is_a_registry_on_the_shared_broker(schema_registry: str) -> None:
    assert RestClient(schema_registry).register("s", '"int"').status == 200


@pytest.mark.millstream(registry=True)
def test_the_marker_gives_a_broker_with_a_registry(kafka: Broker) -> None:
    assert RestClient(kafka.registry_url).get("/subjects").body == []


def test_the_clock_of_the_broker_does_not_stop_the_registry() -> None:
    with Broker(registry=True) as broker:
        rest = RestClient(broker.registry_url)
        rest.register("s", '"int"')
        broker.clock.advance(hours=1)
        assert rest.register("t", '"long"').body == {"id": 2}


def test_a_registry_outlives_a_restart_of_the_broker() -> None:
    with Broker() as broker:
        registry = RegistryThread(broker)
        registry.start()
        try:
            rest = RestClient(registry.url)
            assert rest.register("a", '"int"').body == {"id": 1}
            broker.stop()
            assert rest.get("/subjects").body == ["a"]
            refused = rest.register("b", '"long"')
            assert refused.status == 500
            assert refused.error_code in (50001, 50002, 50004)
            broker.start()
            # It may have to find a new leader, and the new epoch of the topic.
            answers = [rest.register("b", '"long"') for _ in range(3)]
            assert answers[-1].body == {"id": 2}
        finally:
            registry.stop()
