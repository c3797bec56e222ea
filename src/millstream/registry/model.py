"""The nouns of the registry: schemas, versions, references, compatibility levels, modes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class SchemaType(StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Compatibility(StrEnum):
    """Which schema must read data of which: BACKWARD means new reads old."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """All earlier versions count, not only the last one."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.name.startswith(("FORWARD", "FULL"))


DEFAULT_COMPATIBILITY: Final = Compatibility.BACKWARD


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    # Wins over the modes of subjects.
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    # Registrations bring their own ids and versions, and nothing is compared.
    IMPORT = "IMPORT"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses under `name`."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Content:
    """What an id stands for: equal contents have one id, in whatever subjects they are.

    `text` is canonical: two schemas that differ only in white space have the same text. `metadata`
    and `rule_set` are JSON as clients sent them; the registry only keeps them.
    """

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Of a subject, or of all; None leaves the choice to the next wider one."""

    compatibility: Compatibility | None = None
    normalize: bool | None = None
