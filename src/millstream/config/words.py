"""Short names for the rows of the option tables, so that a row stays a row."""

import sys
from typing import Final

from millstream.config.option import Kind, Status

BOOLEAN: Final = Kind.BOOLEAN
STRING: Final = Kind.STRING
INT: Final = Kind.INT
SHORT: Final = Kind.SHORT
LONG: Final = Kind.LONG
DOUBLE: Final = Kind.DOUBLE
LIST: Final = Kind.LIST
CLASS: Final = Kind.CLASS
PASSWORD: Final = Kind.PASSWORD

WORKS: Final = Status.WORKS
REFUSED: Final = Status.REFUSED

DOUBLE_MAX: Final = sys.float_info.max

NO_SECURITY: Final = "TLS, SASL and access rules are not built yet"
NO_QUORUM: Final = "several nodes are a cluster by zookeeper.connect"
NO_MIGRATION: Final = "Kafka's own quorum is not what this node moves to"
NO_TIERS: Final = "tiered storage is not built yet"
NO_PLUGINS: Final = "Java classes cannot be loaded here"
