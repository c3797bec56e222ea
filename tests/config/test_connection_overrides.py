import pytest

from millstream.config import load_config
from millstream.config.connection_overrides import OVERRIDES, by_address, parse_overrides
from millstream.errors import ConfigError


def test_hosts_and_their_limits() -> None:
    text = "10.1.2.3:5, [fe80::1]:7,::1:9 ,db.example:0,"
    assert parse_overrides(text) == {"10.1.2.3": 5, "fe80::1": 7, "::1": 9, "db.example": 0}
    assert parse_overrides("") == {}


@pytest.mark.parametrize("text", ["10.1.2.3", ":5", "10.1.2.3:", "10.1.2.3:many", "a:-1"])
def test_what_is_no_override_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=OVERRIDES):
        load_config(sets=[f"{OVERRIDES}={text}"])


def test_names_are_looked_up(caplog: pytest.LogCaptureFixture) -> None:
    found = by_address({"localhost": 3, "no-such-host.invalid": 4})
    assert found["127.0.0.1"] == 3
    assert 4 not in found.values()
    assert "no-such-host.invalid" in caplog.text
