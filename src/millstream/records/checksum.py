"""CRC-32C, from the `crc32c` package's compiled module.

The package itself is not imported: it asks for its own version, and the search for that
costs a start more than everything in `records` together.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, Protocol


class Checksum(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:
        # Installed in some other shape, a zip file say.
        import crc32c as module
    else:
        module = module_from_spec(found)
        found.loader.exec_module(module)
    function: Checksum = module.crc32c
    return function


crc32c: Final = _load()
