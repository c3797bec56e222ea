"""Finds the batches of a repeated produce, and tells which of them are whole.

A batch is whole if nothing is wrong with it that its bytes can show: it is uncompressed and
outside of transactions, header, checksum and records are right, and the newest record is as new
as the header says. What a topic asks is checked after that (`validation.checked_whole_batch`).
Any other batch may be right as well, and is checked like every produced batch.

The pass over the frame exists twice, compiled and in Python, with the same result.
`IMPLEMENTATION` is the one in use; `PURE` is always there.
"""

from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.broker.requests import _produced_pure


class Implementation(Protocol):
    NAME: str

    def batches_of(self, frame: memoryview, before: bytes) -> list[_produced_pure.Found] | None:
        """Index, batch and whether it is whole, for each partition; None for a frame that is not
        `before`, but for its correlation id, with partitions behind it."""
        ...


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.broker.requests import _produced
        except ImportError:
            return None
    else:
        from millstream.broker.requests import _produced
    return cast(Implementation, _produced)


PURE: Final = cast(Implementation, _produced_pure)
COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or PURE
