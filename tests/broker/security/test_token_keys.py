import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from millstream.broker.security import token_keys
from millstream.broker.security.token_keys import KeyLocation, TokenKeys, key_location
from millstream.config import ConfigError, load_config
from tests.support.tokens import jwk, key_set

KEYS = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
URL = "sasl.oauthbearer.jwks.endpoint.url"


def names(keys):
    return [key.key_id for key in keys]


def test_keys_are_read_again_when_they_are_old_or_one_is_unknown(tmp_path: Path, caplog):
    file = tmp_path / "a b.json"
    file.write_text(key_set(jwk(KEYS[0], "first")))
    now = 100.0
    keys = TokenKeys(KeyLocation(file.as_uri(), 60.0, 10.0), lambda: now)
    keys.load()

    async def scenario():
        nonlocal now
        assert names(keys.keys) == ["first"]
        file.write_text(key_set(jwk(KEYS[1], "second")))
        # A stranger cannot make the node read all the time.
        assert names(await keys.read_again()) == ["first"]
        now += 10
        assert names(await keys.read_again()) == ["second"]
        file.write_text("nonsense")
        now += 60
        assert names(keys.keys) == ["second"]
        assert names(await keys.read_again()) == ["second"]
        assert "stay as they were" in caplog.text
        keys.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [None, "nonsense", '{"keys": []}', "x" * (1 << 20) + "x"])
def test_keys_that_cannot_be_read_stop_the_start(tmp_path: Path, content: str | None):
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=URL):
        TokenKeys(KeyLocation(file.as_uri(), 60.0, 10.0), lambda: 0.0).load()


@pytest.mark.parametrize(
    ("url", "allowed", "problem"),
    [
        ("", (), "needs the keys"),
        ("http://issuer/keys", ("http://issuer/keys",), "file: or an https:"),
        ("https://issuer/keys", (), "allowed.urls"),
        ("https://issuer/keys", ("https://issuer/other",), "allowed.urls"),
        ("https://issuer/keys", ("https://issuer/keys",), None),
        ("file:///keys", (), None),
    ],
)
def test_only_addresses_that_are_allowed_are_asked(url, allowed, problem):
    config = load_config(sets=[f"{URL}={url}"]).for_listener("L", "OAUTHBEARER")
    if problem is None:
        assert key_location(config, allowed).url == url
    else:
        with pytest.raises(ConfigError, match=problem):
            key_location(config, allowed)


def test_an_address_that_does_not_answer_is_an_error(monkeypatch):
    def refuse(url):
        raise OSError("refused")

    monkeypatch.setattr(token_keys, "_download", refuse)
    with pytest.raises(ConfigError, match="refused"):
        TokenKeys(KeyLocation("https://issuer/keys", 60.0, 10.0), lambda: 0.0).load()
