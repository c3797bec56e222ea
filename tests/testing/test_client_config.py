from pathlib import Path

import pytest

from millstream.testing.client_config import Access, client_config

PLAIN = Access("127.0.0.1:9092")
SECURED = Access("127.0.0.1:9092", "SASL_SSL", Path("/ca.pem"), "ann", "secret")


def test_each_client_has_its_own_names() -> None:
    assert client_config("confluent", PLAIN) == {"bootstrap.servers": "127.0.0.1:9092"}
    assert client_config("kafka-python", PLAIN) == {"bootstrap_servers": "127.0.0.1:9092"}
    assert client_config("aiokafka", PLAIN) == {"bootstrap_servers": "127.0.0.1:9092"}
    assert client_config("spark", PLAIN) == {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_credentials_are_in_it() -> None:
    assert client_config("confluent", SECURED)["sasl.password"] == "secret"
    assert client_config("kafka-python", SECURED)["ssl_cafile"] == "/ca.pem"
    assert 'username="ann" password="secret"' in client_config("java", SECURED)["sasl.jaas.config"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of client 'perl'; there are confluent"):
        client_config("perl", PLAIN)
