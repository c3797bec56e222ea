"""When a record may be delivered: not before one time, and not after another.

A record says it in headers, whose values are milliseconds since 1970, in decimal. Whatever is
not such a number counts as absent. See decision 0018.

Knows no log, no loop and no clock.
"""

from typing import Final

NOT_BEFORE: Final = "millstream.not.before.ms"
NOT_AFTER: Final = "millstream.not.after.ms"
HEADERS: Final = (NOT_BEFORE, NOT_AFTER)
