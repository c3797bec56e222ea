"""By which names a registry may be called; what it serves is in `test_rest`."""

import pytest

from millstream.registry.serving import Guard, RegistryServer
from millstream.registry.sockets import listen_on
from millstream.registry.users import Users
from tests.support.set_clock import SetClock

USERS = Guard(users=Users({"ann": "secret"}, SetClock()))


def names_of(host: str, *, guard: Guard, advertised_url: str | None) -> frozenset[str] | None:
    with listen_on(host, 0) as bound:
        server = RegistryServer(
            None,  # type: ignore[arg-type]
            bound,
            guard=guard,
            advertised_url=advertised_url,
        )
        return server._names()


@pytest.mark.parametrize(
    ("host", "advertised_url", "names"),
    [
        ("127.0.0.1", None, {"localhost", "127.0.0.1", "::1"}),
        ("127.0.0.2", None, {"localhost", "127.0.0.1", "::1", "127.0.0.2"}),
        (
            "127.0.0.1",
            "https://Schemas.example:443",
            {"localhost", "127.0.0.1", "::1", "schemas.example"},
        ),
        ("0.0.0.0", None, None),
    ],
)
def test_where_only_this_machine_reaches_it_its_names_are_known(
    host: str, advertised_url: str | None, names: set[str] | None
) -> None:
    assert names_of(host, guard=Guard(), advertised_url=advertised_url) == names


def test_with_a_login_any_name_may_lead_to_it() -> None:
    assert names_of("127.0.0.1", guard=USERS, advertised_url=None) is None
