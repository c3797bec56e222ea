"""Where a table is: a directory, or a folder of a bucket.

A bucket is reached as its environment says: `AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`
and the like, or the rights of the machine. Driver and workers need the same.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

S3: Final = "s3://"

# A text is the address of a folder of a bucket.
Location = Path | str


def is_in_bucket(location: Location) -> TypeGuard[str]:
    return isinstance(location, str) and location.startswith(S3)


def location_of(text: str) -> Location:
    return text if text.startswith(S3) else Path(text)


def as_text(location: Location) -> str:
    """The same for any working directory; `location_of` reads it."""
    return location if isinstance(location, str) else str(location.absolute())


def file_system(location: Location) -> "tuple[FileSystem, str]":
    """What reads and writes there, and the location's path in it."""
    from pyarrow.fs import FileSystem

    found: tuple[FileSystem, str] = FileSystem.from_uri(as_text(location))
    return found
