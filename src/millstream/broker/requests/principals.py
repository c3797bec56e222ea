"""Principals as requests write them: a type and a name."""

from typing import Protocol

from millstream.errors import KafkaCode, KafkaError


class NamedPrincipal(Protocol):
    @property
    def principal_type(self) -> str: ...
    @property
    def principal_name(self) -> str: ...


def principal_text(named: NamedPrincipal) -> str:
    """Raises KafkaError: users are the only type."""
    if named.principal_type != "User":
        raise KafkaError(
            KafkaCode.INVALID_PRINCIPAL_TYPE, f"{named.principal_type} is not a type of principals"
        )
    return f"User:{named.principal_name}"


def type_and_name(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name
