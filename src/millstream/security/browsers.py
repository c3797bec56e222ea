"""Which requests come from a web page of another site.

A server on this machine accepts connections from every program of its user, the browser included.
A page of another site must not use it. The Origin header of its requests names that site. If the
site has made its own name point to this machine, the Host header shows that name.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# What a page may ask of any server: its browser does not show it the answer.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def host_name(host_header: str) -> str:
    """The name in a Host header, without port and brackets."""
    try:
        return urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return ""


def is_from_another_site(headers: Mapping[str, str]) -> bool:
    """Does a page of another origin make this request? Programs do not say where they are from."""
    site = headers.get("sec-fetch-site")
    # The browser itself has compared, and no page can set this header. A proxy in between may have
    # written another Host. Browsers send it only to https and to this machine's own names, so a
    # name that has come to mean this machine does not get it.
    if site == "same-origin":
        return False
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != headers.get("host"):
        return True
    return site is not None and site != "none"


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
