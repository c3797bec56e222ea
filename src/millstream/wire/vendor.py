"""Requests that are ours and not Kafka's: their own key range, from 20000 up.

They are listed in ApiVersions only to clients that call themselves `millstream`, so that
nobody else's client meets keys it does not know. `docs/protocol.md` has the table.
"""

from typing import Final

KEYS_FROM: Final = 20_000
CLIENT_SOFTWARE_NAME: Final = "millstream"
