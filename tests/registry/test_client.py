import pytest

from millstream.registry.client import RegistryClient, RegistryRefused
from millstream.registry.model import Content, Reference, SchemaType
from millstream.testing import Broker
from tests.support.ports import reserve_port
from tests.support.rest_client import RestClient


def test_registering_and_finding(registry_broker: Broker, subject: str) -> None:
    client = RegistryClient(registry_broker.registry_url + "/")
    schema_id = client.register(f"{subject}/ä", SchemaType.JSON, '{"type": "string"}')
    assert client.latest_id(f"{subject}/ä") == schema_id
    assert client.content(schema_id) == Content(SchemaType.JSON, '{"type":"string"}')


def test_dependencies_come_in_the_order_they_need(rest: RestClient, subject: str) -> None:
    low = '{"type":"enum","name":"Low","symbols":["A"]}'
    rest.register(f"{subject}-low", low)
    reference = {"name": "Low", "subject": f"{subject}-low", "version": 1}
    middle = '{"type":"record","name":"Mid","fields":[{"name":"l","type":"Low"}]}'
    rest.register(f"{subject}-mid", middle, references=[reference])
    client = RegistryClient(rest.url)
    references = (Reference("Mid", f"{subject}-mid", 1), Reference("Low", f"{subject}-low", 1))
    found = client.dependencies(Content(SchemaType.AVRO, '"Mid"', references))
    assert [(one.name, one.text) for one in found] == [("Low", low), ("Mid", middle)]


def test_refusals_have_the_code_and_text_of_the_registry(
    registry_broker: Broker, subject: str
) -> None:
    client = RegistryClient(registry_broker.registry_url)
    with pytest.raises(RegistryRefused, match="not found") as raised:
        client.latest_id(subject)
    assert raised.value.code == 40401
    with pytest.raises(RegistryRefused) as raised:
        client.content(999_999)
    assert raised.value.code == 40403


def test_a_registry_that_is_not_there_is_named_without_the_login() -> None:
    port = reserve_port()
    client = RegistryClient(f"http://ann:secret@127.0.0.1:{port}")
    with pytest.raises(RegistryRefused, match=f"127.0.0.1:{port}") as raised:
        client.content(1)
    assert "secret" not in str(raised.value)
    for url in ("nowhere", "ftp://x", "http://"):
        with pytest.raises(ValueError, match="is not http"):
            RegistryClient(url)
