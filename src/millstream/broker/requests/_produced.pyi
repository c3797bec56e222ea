"""What the compiled module offers: the same as `_produced_pure`."""

from millstream.broker.requests._produced_pure import Found

NAME: str

def batches_of(frame: memoryview, before: bytes) -> list[Found] | None: ...
