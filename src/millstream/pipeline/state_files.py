"""Where open results are kept: files of a directory, or objects of a bucket.

Each file is there as a whole or not at all. In a bucket a name is given once: if two drivers are
alive, on machines that do not see each other, both find what the first of them wrote.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.warehouse.locations import S3, Location, is_in_bucket

if TYPE_CHECKING:
    from botocore.client import BaseClient

_TRIES: Final = 10
# Somebody else was first, or is about to be.
_REFUSED: Final = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_ABSENT: Final = ("NoSuchKey", "404")


class StateFiles(Protocol):
    def names(self) -> list[str]: ...

    def path(self, name: str) -> str:
        """For people."""
        ...

    def read(self, name: str) -> bytes | None:
        """None if there is no such file."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace what was there."""
        ...

    def keep(self, name: str, data: bytes) -> bytes:
        """Write unless another process did; what is there now."""
        ...

    def remove(self, name: str) -> None: ...


def files_of(location: Location) -> StateFiles:
    return Bucket(location) if is_in_bucket(location) else Directory(Path(location))


class Directory:
    """Of one machine, or shared by several of which one runs the pipeline at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return [path.name for path in self._folder.glob("*")]

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / (name + ".new")
        new.write_bytes(data)
        _sync(new)
        new.replace(self._folder / name)
        _sync(self._folder)

    def keep(self, name: str, data: bytes) -> bytes:
        self.write(name, data)
        return data

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """A file, or the names in a folder: all of it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket:
    """A folder of a bucket, reached as the environment says."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._bucket, _, folder = address.removeprefix(S3).partition("/")
        self._prefix = f"{folder}/" if folder else ""
        self._client = _client()

    def names(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
        )
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        return [key.removeprefix(self._prefix) for key in keys]

    def path(self, name: str) -> str:
        return f"{self._address}/{name}"

    def read(self, name: str) -> bytes | None:
        from botocore.exceptions import ClientError

        try:
            found = self._client.get_object(**self._place(name))
        except ClientError as failed:
            if _code(failed) in _ABSENT:
                return None
            raise
        data: bytes = found["Body"].read()
        return data

    def write(self, name: str, data: bytes) -> None:
        self._client.put_object(**self._place(name), Body=data)

    def keep(self, name: str, data: bytes) -> bytes:
        from botocore.exceptions import ClientError

        for _ in range(_TRIES):
            try:
                self._client.put_object(**self._place(name), Body=data, IfNoneMatch="*")
            except ClientError as failed:
                if _code(failed) not in _REFUSED:
                    raise
                # An answer that was lost makes our own object look like another's.
                found = self.read(name)
                if found is not None:
                    return found
            else:
                return data
        raise OSError(f"{self.path(name)} can be neither written nor read")

    def remove(self, name: str) -> None:
        self._client.delete_object(**self._place(name))

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}


def _client() -> "BaseClient":
    # Needed only where the state is in a bucket.
    import boto3
    from botocore.config import Config

    settings = Config(retries={"total_max_attempts": _TRIES, "mode": "standard"})
    # Other clients of the pipeline know this name; this one reads AWS_DEFAULT_REGION.
    region = os.environ.get("AWS_REGION")
    return boto3.client("s3", region_name=region, config=settings)


def _code(failed: Any) -> str:
    code: str = failed.response.get("Error", {}).get("Code", "")
    return code
