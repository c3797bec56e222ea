"""From options to the SASL mechanisms of each listener."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from millstream.broker.security.authentication import SaslListener
from millstream.broker.security.mechanisms import (
    Mechanism,
    OAuthBearer,
    Plain,
    Scram,
    TokenCredentials,
)
from millstream.broker.security.plain_users import PlainUsers, users_of
from millstream.broker.security.scram_credentials import ScramCredentials
from millstream.broker.security.slow_checks import SlowChecks
from millstream.broker.security.token_keys import TokenKeys, key_location
from millstream.clock import Clock
from millstream.config import BrokerConfig, Listener
from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.jaas import parse_jaas
from millstream.security.sasl.jwt_check import TokenRules
from millstream.security.sasl.scram import HASHES

_MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")


@dataclass(slots=True)
class SaslListeners:
    """What the listeners use, for those who keep it current."""

    listeners: dict[str, SaslListener] = field(default_factory=dict)
    plain_users: list[PlainUsers] = field(default_factory=list)
    token_keys: list[TokenKeys] = field(default_factory=list)
    slow_checks: SlowChecks = field(default_factory=SlowChecks)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What SCRAM logs in against. `secret` makes up salts for users who do not exist."""

    scram: ScramCredentials
    tokens: TokenCredentials
    secret: bytes


def sasl_listeners(
    listeners: Sequence[Listener], config: BrokerConfig, credentials: Credentials, clock: Clock
) -> SaslListeners:
    """Raises ConfigError for options that do not fit together."""
    made = SaslListeners()
    for listener in listeners:
        if not listener.uses_sasl:
            continue
        own = config.for_listener(listener.name)
        mechanisms: dict[str, Mechanism] = {}
        for name in own.list("sasl.enabled.mechanisms"):
            mechanisms[name.upper()] = _mechanism(
                name.upper(), listener, config, credentials, clock, made
            )
        if not mechanisms:
            raise ConfigError(f"sasl.enabled.mechanisms: listener {listener.name} has none")
        made.listeners[listener.name] = SaslListener(
            mechanisms,
            frame_bytes_max=own.int("sasl.server.max.receive.size"),
            reauthenticate_ms=own.int("connections.max.reauth.ms"),
        )
    return made


def _mechanism(
    name: str,
    listener: Listener,
    config: BrokerConfig,
    credentials: Credentials,
    clock: Clock,
    made: SaslListeners,
) -> Mechanism:
    if name == "PLAIN":
        return Plain(_plain_users(listener, config, made), made.slow_checks)
    if name in HASHES:
        return Scram(name, credentials.scram, credentials.tokens, credentials.secret)
    if name == "OAUTHBEARER":
        keys, rules = _token_keys(listener, config, clock, made)
        return OAuthBearer(keys, rules, clock.now_ms)
    raise ConfigError(
        f"sasl.enabled.mechanisms: listener {listener.name} has {name}; this node knows "
        + ", ".join(_MECHANISMS)
    )


def _plain_users(listener: Listener, config: BrokerConfig, made: SaslListeners) -> PlainUsers:
    own = config.for_listener(listener.name, "PLAIN")
    if not listener.uses_tls and not own.boolean("sasl.plain.allow.without.tls"):
        raise ConfigError(
            f"sasl.enabled.mechanisms: PLAIN would send passwords in the clear on listener "
            f"{listener.name}. Use SASL_SSL or SCRAM-SHA-512, or set sasl.plain.allow.without.tls"
        )
    jaas = own.optional_string("sasl.jaas.config")
    file = own.optional_string("sasl.plain.users.file")
    prefix = f"listener.name.{listener.name.lower()}.plain."
    users: Mapping[str, str] = {}
    if jaas is not None:
        try:
            users = users_of(parse_jaas(jaas))
        except ValueError as error:
            raise ConfigError(f"{prefix}sasl.jaas.config: {error}") from None
    elif file is None:
        raise ConfigError(
            f"{prefix}sasl.jaas.config: PLAIN has no users. Set it to `PlainLoginModule required "
            'user_<name>="<password>";\', or set sasl.plain.users.file'
        )
    found = PlainUsers(users, None if file is None else Path(file))
    made.plain_users.append(found)
    return found


def _token_keys(
    listener: Listener, config: BrokerConfig, clock: Clock, made: SaslListeners
) -> tuple[TokenKeys, TokenRules]:
    own = config.for_listener(listener.name, "OAUTHBEARER")
    issuer = own.optional_string("sasl.oauthbearer.expected.issuer")
    audiences = own.list("sasl.oauthbearer.expected.audience")
    if issuer is None or not audiences:
        raise ConfigError(
            "OAUTHBEARER needs sasl.oauthbearer.expected.issuer and "
            "sasl.oauthbearer.expected.audience: without them, tokens for others would count"
        )
    allowed = config.list("org.apache.kafka.sasl.oauthbearer.allowed.urls")
    keys = TokenKeys(key_location(own, allowed), clock.monotonic)
    keys.load()
    made.token_keys.append(keys)
    rules = TokenRules(
        issuer=issuer,
        audiences=tuple(audiences),
        clock_skew_seconds=own.int("sasl.oauthbearer.clock.skew.seconds"),
        subject_claim=own.string("sasl.oauthbearer.sub.claim.name"),
        scope_claim=own.string("sasl.oauthbearer.scope.claim.name"),
    )
    return keys, rules
