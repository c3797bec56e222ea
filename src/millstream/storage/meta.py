"""`meta.properties`: the cluster, node and id of a data directory."""

import uuid

from millstream.errors import StartError
from millstream.lazy_dataclass import dataclass
from millstream.storage import layout
from millstream.storage.checkpoints import format_properties, format_uuid, parse_properties
from millstream.storage.files import FileSystem, read_file, write_file


@dataclass(frozen=True, slots=True)
class DirectoryMeta:
    cluster_id: str
    broker_id: int
    directory_id: str
    # The file's content; None if it is already on the disk.
    new_content: bytes | None


def read_or_make_meta(
    file_system: FileSystem, directory: str, *, cluster_id: str | None, broker_id: int
) -> DirectoryMeta:
    """What the file says, or will say. Raises StartError if the directory is not ours."""
    path = f"{directory}/{layout.META_FILE}"
    data = read_file(file_system, path)
    values = _parse(data, path)
    if data is not None and values.get("version") not in ("0", "1"):
        raise StartError(f"{path} has version {values.get('version')!r}, known are 0 and 1")
    found_id = values.get("node.id", values.get("broker.id"))
    if found_id is not None and found_id != str(broker_id):
        raise StartError(
            f"data directory {directory} belongs to node {found_id}, this is node {broker_id}"
        )
    found_cluster = values.get("cluster.id")
    if found_cluster is not None and cluster_id is not None and found_cluster != cluster_id:
        raise StartError(
            f"data directory {directory} belongs to cluster {found_cluster},"
            f" this is cluster {cluster_id}"
        )
    cluster = found_cluster or cluster_id or format_uuid(uuid.uuid4())
    directory_id = values.get("directory.id") or format_uuid(uuid.uuid4())
    content = None
    if data is None:
        content = format_properties(
            {
                "version": "1",
                "cluster.id": cluster,
                "node.id": str(broker_id),
                "directory.id": directory_id,
            }
        )
    return DirectoryMeta(cluster, broker_id, directory_id, content)


def stored_node_id(file_system: FileSystem, directory: str) -> int | None:
    """The node that a directory belongs to; None if it has no owner yet."""
    path = f"{directory}/{layout.META_FILE}"
    values = _parse(read_file(file_system, path), path)
    found = values.get("node.id", values.get("broker.id", ""))
    return int(found) if found.isdigit() else None


def _parse(data: bytes | None, path: str) -> dict[str, str]:
    try:
        return {} if data is None else parse_properties(data)
    except ValueError as error:
        raise StartError(f"{path} is damaged ({error}); restore it from a backup") from error


class DirectoryOwner:
    """The identity of a data directory: known once it is claimed, on the disk after `keep`."""

    __slots__ = ("_directory", "_file_system", "_meta")

    def __init__(
        self, file_system: FileSystem, directory: str, *, cluster_id: str | None, broker_id: int
    ) -> None:
        """Raises StartError if it is not ours."""
        self._file_system = file_system
        self._directory = directory
        self._meta = read_or_make_meta(
            file_system, directory, cluster_id=cluster_id, broker_id=broker_id
        )

    @property
    def cluster_id(self) -> str:
        return self._meta.cluster_id

    @property
    def is_new(self) -> bool:
        """Was the directory without an owner when it was claimed?"""
        return self._meta.new_content is not None

    def keep(self, cluster_id: str | None = None) -> None:
        """Write it, if it is new; with this cluster, if the directory had no owner. Raises
        StartError."""
        if self._meta.new_content is None:
            return
        try:
            if cluster_id is not None:
                self._meta = read_or_make_meta(
                    self._file_system,
                    self._directory,
                    cluster_id=cluster_id,
                    broker_id=self._meta.broker_id,
                )
            assert self._meta.new_content is not None, "another process has written it"
            path = f"{self._directory}/{layout.META_FILE}"
            write_file(self._file_system, path, self._meta.new_content, is_synced=True)
        except OSError as error:
            raise StartError(f"cannot use data directory {self._directory}: {error}") from error
