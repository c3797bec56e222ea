"""`produce` and `consume` with a schema registry: options, and records to JSON and back."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import echo
from millstream.cli.record_text import JsonRecord, TextRecord
from millstream.cli.secret_options import refuse_login_in_url

if TYPE_CHECKING:
    from millstream.registry.client import RegistryClient
    from millstream.registry.encoding import Codec
    from millstream.registry.model import SchemaType

F = TypeVar("F", bound=Callable[..., object])

_DEFAULT_URL: Final = "http://127.0.0.1:8081"
_TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_SCHEMA_HELP: Final = (
    "are JSON and sent encoded: a FILE (.avsc, .json or .proto), which is registered, `latest`, or "
    "the id of a schema."
)
_NO_SUCH_SCHEMA: Final = 40403


def registry_option(help_text: str) -> Callable[[F], F]:
    return click.option(
        "--registry",
        "registry_url",
        metavar="URL",
        envvar="MILLSTREAM_REGISTRY",
        callback=refuse_login_in_url,
        help=f"{help_text} Also from MILLSTREAM_REGISTRY, where it may have a login: "
        "http://NAME:PASSWORD@HOST:PORT.",
    )


def schema_options(command: F) -> F:
    """Add `--value-schema`, `--key-schema` and `--registry` to a command that sends."""
    for option in (
        registry_option(f"The schema registry.  [default: {_DEFAULT_URL}]"),
        click.option("--key-schema", metavar="SCHEMA", help="The same for keys."),
        click.option("--value-schema", metavar="SCHEMA", help=f"Values {_SCHEMA_HELP}"),
    ):
        command = option(command)
    return command


def encoder(
    topic: str, value_schema: str | None, key_schema: str | None, registry_url: str | None
) -> Callable[[JsonRecord], None] | None:
    """Encodes a record in place, or raises ValueError; None if nothing is to be encoded.

    Raises CommandFailed."""
    if value_schema is None and key_schema is None:
        return None
    client = _connect(registry_url or _DEFAULT_URL)
    encode_value = _part_encoder(client, f"{topic}-value", "--value-schema", value_schema)
    encode_key = _part_encoder(client, f"{topic}-key", "--key-schema", key_schema)

    def encode(record: JsonRecord) -> None:
        if record.value is not None and encode_value is not None:
            record.value = encode_value(record.value)
        if record.key is not None and encode_key is not None:
            record.key = encode_key(record.key)

    return encode


def _part_encoder(
    client: "RegistryClient", subject: str, option: str, wanted: str | None
) -> Callable[[bytes], bytes] | None:
    if wanted is None:
        return None
    from millstream.registry.client import RegistryRefused
    from millstream.registry.encoding import join

    try:
        schema_id = _find_id(client, subject, option, wanted)
        codec = _codec(client, schema_id)
    except RegistryRefused as refused:
        raise CommandFailed(f"{option} {wanted}: {refused}") from None
    return lambda data: join(schema_id, codec.encode(data))


def _find_id(client: "RegistryClient", subject: str, option: str, wanted: str) -> int:
    if wanted == "latest":
        return client.latest_id(subject)
    if wanted.isascii() and wanted.isdecimal():
        return int(wanted)
    file = Path(wanted)
    if file.suffix not in _TYPES:
        known = ", ".join(_TYPES)
        raise click.UsageError(
            f"{option} is `latest`, the id of a schema, or a file that ends with one of {known}; "
            f"not {wanted!r}"
        )
    return client.register(subject, _type_of(file), file.read_text())


def _type_of(file: Path) -> "SchemaType":
    from millstream.registry.model import SchemaType

    return SchemaType(_TYPES[file.suffix])


def _codec(client: "RegistryClient", schema_id: int) -> "Codec":
    """Raises RegistryRefused and CommandFailed."""
    from millstream.registry.encoding import load_codec
    from millstream.registry.formats.text import InvalidSchema

    try:
        return load_codec(client, schema_id)
    except InvalidSchema as wrong:
        raise CommandFailed(f"schema {schema_id} of {client.url} is not valid: {wrong}") from None


def decoder(registry_url: str | None) -> Callable[[TextRecord], None] | None:
    """Decodes a record in place; None without a registry. Raises CommandFailed."""
    if registry_url is None:
        return None
    return _Decoder(_connect(registry_url)).decode


class _Decoder:
    def __init__(self, client: "RegistryClient") -> None:
        self._client = client
        # None for ids that the registry does not know: that data only looks like ours.
        self._codecs: dict[int, Codec | None] = {}
        self._warned: set[int] = set()

    def decode(self, record: TextRecord) -> None:
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        record.key = self._decoded(record.key, f"the key at {where}")
        record.value = self._decoded(record.value, f"the value at {where}")

    def _decoded(self, data: bytes | None, what: str) -> bytes | None:
        """Data that cannot be decoded stays as it is."""
        from millstream.registry.encoding import split

        parts = None if data is None else split(data)
        if parts is None:
            return data
        schema_id, payload = parts
        codec = self._find(schema_id)
        if codec is None:
            return data
        try:
            return codec.decode(payload)
        except ValueError as wrong:
            if schema_id not in self._warned:
                self._warned.add(schema_id)
                echo(f"millstream: {what}, schema {schema_id}: {wrong}; printed as it is", err=True)
            return data

    def _find(self, schema_id: int) -> "Codec | None":
        from millstream.registry.client import RegistryRefused

        if schema_id not in self._codecs:
            try:
                self._codecs[schema_id] = _codec(self._client, schema_id)
            except RegistryRefused as refused:
                if refused.code != _NO_SUCH_SCHEMA:
                    raise CommandFailed(str(refused)) from None
                self._codecs[schema_id] = None
        return self._codecs[schema_id]


def check_registry(option: str, url: str | None) -> None:
    """Raises CommandFailed for what is not the URL of a registry, or without its libraries."""
    if url is not None:
        _connect(url, option)


def _connect(url: str, option: str = "--registry") -> "RegistryClient":
    from millstream.cli.registry import is_installed

    if not is_installed():
        raise CommandFailed("schemas need: pip install 'millstream[registry]'")
    from millstream.registry.client import RegistryClient

    try:
        return RegistryClient(url)
    except ValueError as wrong:
        raise CommandFailed(f"{option}: {wrong}", exit_code=ExitCode.USAGE) from None
