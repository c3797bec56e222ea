"""Importing kio, which has the shape of every message."""

import sys


def import_schemas() -> None:
    """Import kio without hypothesis, to which it registers strategies where it is installed.

    That takes longer than kio itself, and only its own tests need it. To be called while
    there are no other threads that may want hypothesis themselves.
    """
    if "kio" in sys.modules:
        return
    is_blocked = "hypothesis" not in sys.modules
    if is_blocked:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # "not installed"
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        if is_blocked:
            del sys.modules["hypothesis"]
