"""Key sets for tokens that tests sign."""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def jwk(key: PrivateKey, key_id: str) -> dict[str, Any]:
    """The public half, as an entry of a key set."""
    if isinstance(key, rsa.RSAPrivateKey):
        entry = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        entry = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    entry.pop("key_ops", None)
    return {**entry, "kid": key_id}


def key_set(*entries: dict[str, Any]) -> str:
    return json.dumps({"keys": entries})
