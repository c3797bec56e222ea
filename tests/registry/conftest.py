"""One broker with a registry for all tests here; each test makes its own subjects."""

import uuid
from collections.abc import Iterator

import pytest

from millstream.testing import Broker
from tests.support.rest_client import RestClient


@pytest.fixture(scope="package")
def registry_broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def rest(registry_broker: Broker) -> RestClient:
    return RestClient(registry_broker.registry_url)


@pytest.fixture
def subject() -> str:
    return f"subject-{uuid.uuid4().hex[:8]}"
