"""Requests that are ours and not Kafka's: their own key range, from 20000 up.

ApiVersions lists them only to clients that call themselves `millstream`, so that no other
client sees unknown keys. `docs/protocol.md` has the table.
"""

from typing import Final

KEYS_FROM: Final = 20_000
CLIENT_SOFTWARE_NAME: Final = "millstream"
