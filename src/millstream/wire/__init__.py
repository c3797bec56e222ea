"""Bytes of the Kafka protocol, in and out: frames, headers, and every message.

`apis/<name>.py` declares an API (`message` says how), `codec` reads and writes what is declared
through `cursor` and `output`. Produce, Fetch and OffsetCommit, where the time goes, are also
written by hand (`produce`, `fetch`, `offset_commit`), and known repetitions of them are
compared instead of decoded (`repeated`, `repeated_commit`). No I/O, no clock, no decisions.
"""
