"""Gives back the memory of large requests, a little at a time.

Python frees what nothing refers to at once, and everything below it in the same step: 20 ms
for 200,000 elements of a request. In whichever thread that happens, the loop waits for it.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from millstream.broker.requests.pacing import Each, at_once
from millstream.wire.message import Message

# Some tens of microseconds.
_FREED_AT_ONCE_MAX: Final = 250
# Shorter lists are freed with what they are in.
_SHORT: Final = 8


def free(remains: list[object], each: Each = at_once) -> None:
    """Empty the list, which must be the last to refer to what is in it.

    What somebody else refers to as well is left as it is. `each` may pause between steps.
    """
    for _ in each(_steps(remains)):
        pass


def _steps(remains: list[object]) -> Iterator[None]:
    while remains:
        last = remains.pop()
        if isinstance(last, Message):
            remains += _lists_below(last)
        elif isinstance(last, list) and len(last) > _FREED_AT_ONCE_MAX:
            # A copy: the list itself may belong to somebody.
            elements = last.copy()
            # Without this name the elements are referred to by the copy alone.
            del last
            yield from _free_elements(elements, remains)
        elif isinstance(last, list):
            remains += _lists_in(last)
        elif isinstance(last, dict | set) and len(last) > _FREED_AT_ONCE_MAX:
            elements = [*last, *last.values()] if isinstance(last, dict) else [*last]
            del last
            yield from _free_elements(elements, remains)
        elif isinstance(last, tuple):
            remains += last


def _free_elements(elements: list[object], remains: list[object]) -> Iterator[None]:
    while elements:
        remains += _lists_in(elements[-_FREED_AT_ONCE_MAX:])
        del elements[-_FREED_AT_ONCE_MAX:]
        yield


def _lists_in(elements: list[Any]) -> list[object]:
    if not elements or not _list_fields(elements[0].__class__):
        return []
    return [found for element in elements for found in _lists_below(element)]


def _lists_below(element: Any) -> list[object]:
    """The lists that are not short. A request for a single topic may name 200,000 partitions, so
    short ones are looked into."""
    found: list[object] = []
    values = vars(element)
    for name in _list_fields(element.__class__):
        value = values.get(name)
        if value:
            found += [value] if len(value) > _SHORT else _lists_in(value)
    return found


@cache
def _list_fields(kind: type[Any]) -> list[str]:
    if not issubclass(kind, Message):
        return []
    return [name for name, what in kind.declared_fields.items() if what.startswith("list")]
