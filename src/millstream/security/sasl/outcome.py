"""How an authentication ends, and the names in its messages."""

import re
from typing import Final

from millstream.lazy_dataclass import dataclass

# The same for an unknown user and for a wrong password.
INVALID_CREDENTIALS: Final = "Authentication failed: invalid credentials"
# In a name, "," and "=" are written as =2C and =3D, and nothing else begins with "=".
_WRONG_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class AuthenticationFailed(Exception):
    """Its text is for the client, so it never contains a secret or whether a user exists."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who has logged in. `expires_at_ms` is the wall-clock time at which the proof expires."""

    user: str
    expires_at_ms: int | None = None


def unescape_name(text: str) -> str:
    """Raises AuthenticationFailed."""
    if _WRONG_ESCAPE.search(text):
        raise AuthenticationFailed("Authentication failed: in a name, = is written as =3D")
    return text.replace("=2C", ",").replace("=3D", "=")


def check_authorization_id(authorization_id: str, user: str) -> None:
    """A client may only act as the user it proves to be."""
    if authorization_id and authorization_id != user:
        raise AuthenticationFailed(
            "Authentication failed: the authorization id must be empty or the user name"
        )
