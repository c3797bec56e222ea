"""Whether a JSON Web Token proves who its bearer is.

The key decides which algorithms count, never the token alone: only signatures with a public
key, in an algorithm of that kind of key. Needs PyJWT (the extra `security`), imported when
the first keys are read.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.outcome import Identity

if TYPE_CHECKING:
    from jwt import PyJWK

_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA_BITS_MIN: Final = 2048


class InvalidToken(Exception):
    """Its text is for the node's log and never contains the token."""


class UnknownKey(InvalidToken):
    """The token names a key that is not among those that are known: they may have changed."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str
    audiences: tuple[str, ...]
    clock_skew_seconds: int
    subject_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key_id: str | None
    algorithms: tuple[str, ...]
    jwk: "PyJWK"


def read_keys(text: str) -> list[VerificationKey]:
    """The usable keys of a JSON Web Key Set. Raises ValueError."""
    import json

    content = json.loads(text)
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError('not a key set: there is no list "keys"')
    keys = [key for entry in entries if (key := _read_key(entry)) is not None]
    if not keys:
        raise ValueError("no key for RS*, PS* or ES* signatures is in the key set")
    return keys


def _read_key(entry: Any) -> VerificationKey | None:
    """None for keys of other kinds, which a set may contain."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithms = _algorithms(entry)
    wanted = entry.get("alg")
    if wanted is not None:
        algorithms = tuple(name for name in algorithms if name == wanted)
    if not algorithms:
        return None
    try:
        jwk = PyJWK(entry, algorithm=algorithms[0])
    except PyJWTError as error:
        raise ValueError(f"the key set has a key that cannot be read: {error}") from None
    if entry["kty"] == "RSA" and jwk.key.key_size < _RSA_BITS_MIN:
        raise ValueError(f"the key set has an RSA key below {_RSA_BITS_MIN} bits")
    return VerificationKey(entry.get("kid"), algorithms, jwk)


def _algorithms(entry: Mapping[str, object]) -> tuple[str, ...]:
    if entry.get("kty") == "RSA":
        return _RSA_ALGORITHMS
    if entry.get("kty") == "EC" and str(entry.get("crv")) in _CURVE_ALGORITHMS:
        return (_CURVE_ALGORITHMS[str(entry["crv"])],)
    return ()


def check_token(
    token: str, keys: Sequence[VerificationKey], rules: TokenRules, *, now_ms: int
) -> Identity:
    """Raises InvalidToken."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
        key, algorithm = _key_for(header, keys)
        claims: dict[str, Any] = jwt.decode(
            token,
            key.jwk.key,
            algorithms=[algorithm],
            issuer=rules.issuer,
            audience=rules.audiences,
            # Times are compared below, with the time that was passed in.
            options={
                "require": ["exp", "iss", "aud", rules.subject_claim],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except jwt.exceptions.PyJWTError as error:
        raise InvalidToken(f"{type(error).__name__}: {error}") from None
    expires_at_ms = _check_times(claims, rules, now_ms=now_ms)
    _check_scope(claims, rules)
    subject = claims[rules.subject_claim]
    if not isinstance(subject, str) or not subject:
        raise InvalidToken(f"the claim {rules.subject_claim} is not a name")
    return Identity(subject, expires_at_ms)


def _key_for(
    header: Mapping[str, Any], keys: Sequence[VerificationKey]
) -> tuple[VerificationKey, str]:
    algorithm, key_id = header.get("alg"), header.get("kid")
    named = [key for key in keys if key_id is None or key.key_id == key_id]
    if not named:
        raise UnknownKey("it is signed with a key that is not in the key set")
    fitting = [key for key in named if algorithm in key.algorithms]
    if not fitting:
        raise InvalidToken("its algorithm is not one of its key's")
    if len(fitting) > 1:
        raise InvalidToken("it does not say which key of several it is signed with")
    return fitting[0], str(algorithm)


def _check_times(claims: Mapping[str, Any], rules: TokenRules, *, now_ms: int) -> int:
    """Until when the token is accepted, in milliseconds."""
    skew_ms = rules.clock_skew_seconds * 1000
    times = {name: _time_ms(claims, name) for name in ("exp", "nbf", "iat")}
    assert times["exp"] is not None
    expires_at_ms = times["exp"] + skew_ms
    if expires_at_ms <= now_ms:
        raise InvalidToken("it has expired")
    for name in ("nbf", "iat"):
        begins_at_ms = times[name]
        if begins_at_ms is not None and begins_at_ms - skew_ms > now_ms:
            raise InvalidToken(f"it is not valid yet ({name})")
    return expires_at_ms


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None and name != "exp":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken(f"the claim {name} is not a time")
    return int(value * 1000)


def _check_scope(claims: Mapping[str, Any], rules: TokenRules) -> None:
    """As in Kafka, a scope need not be there, and gives no rights."""
    scope = claims.get(rules.scope_claim, "")
    words = [scope] if isinstance(scope, str) else scope
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidToken(f"the claim {rules.scope_claim} is neither a text nor a list of texts")
