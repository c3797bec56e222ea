"""Options that connect somebody's client to a broker of a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from millstream.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """The address, and what a client needs to get in."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    ca_file: Path | None = None
    username: str = ""
    password: str = ""

    @property
    def mechanism(self) -> str:
        return "SCRAM-SHA-512" if self.protocol.startswith("SASL") else ""


def client_config(kind: str, access: Access) -> dict[str, Any]:
    """For `confluent`, `kafka-python`, `aiokafka`, `java` or `spark`."""
    if kind not in _KINDS:
        raise ValueError(f"there is no kind of client {kind!r}; there are {', '.join(_KINDS)}")
    return _KINDS[kind](access)


def _confluent(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": access.bootstrap}
    if access.protocol != "PLAINTEXT":
        found["security.protocol"] = access.protocol
    if access.ca_file is not None:
        found["ssl.ca.location"] = str(access.ca_file)
    if access.mechanism:
        found |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.username,
            "sasl.password": access.password,
        }
    return found


def _kafka_python(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": access.bootstrap}
    if access.protocol != "PLAINTEXT":
        found["security_protocol"] = access.protocol
    if access.ca_file is not None:
        found["ssl_cafile"] = str(access.ca_file)
    if access.mechanism:
        found |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }
    return found


def _aiokafka(access: Access) -> dict[str, Any]:
    found = _kafka_python(access)
    if access.ca_file is not None:
        import ssl

        del found["ssl_cafile"]
        found["ssl_context"] = ssl.create_default_context(cafile=str(access.ca_file))
    return found


def _java(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": access.bootstrap}
    if access.protocol != "PLAINTEXT":
        found["security.protocol"] = access.protocol
    if access.ca_file is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(access.ca_file)}
    if access.mechanism:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'{module} required username="{access.username}" password="{access.password}";'
        found |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": login}
    return found


def _spark(access: Access) -> dict[str, Any]:
    return {f"kafka.{name}": value for name, value in _java(access).items()}


_KINDS: Final[dict[str, Callable[[Access], dict[str, Any]]]] = {
    "confluent": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
    "spark": _spark,
}
