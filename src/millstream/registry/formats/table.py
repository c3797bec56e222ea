"""All formats: what to call for a schema of each type."""

from collections.abc import Sequence
from typing import assert_never

from millstream.registry.compatibility.avro import compare_avro
from millstream.registry.compatibility.difference import Difference, TooManyPairs
from millstream.registry.compatibility.json_schema import compare_json_schema
from millstream.registry.compatibility.protobuf import compare_protobuf
from millstream.registry.formats.avro import AvroSchema, parse_avro
from millstream.registry.formats.json_schema import (
    JsonSchema,
    normalized_json_schema,
    parse_json_schema,
)
from millstream.registry.formats.protobuf import ProtobufSchema, parse_protobuf
from millstream.registry.formats.text import Dependency
from millstream.registry.model import SchemaType

ParsedSchema = AvroSchema | JsonSchema | ProtobufSchema


def parse(
    schema_type: SchemaType, text: str, dependencies: Sequence[Dependency] = ()
) -> ParsedSchema:
    """Each dependency stands behind those that it needs. Raises InvalidSchema."""
    match schema_type:
        case SchemaType.AVRO:
            return parse_avro(text, dependencies)
        case SchemaType.JSON:
            return parse_json_schema(text, dependencies)
        case SchemaType.PROTOBUF:
            return parse_protobuf(text, dependencies)
        case _:
            assert_never(schema_type)


def normalized(schema: ParsedSchema) -> str:
    """The text that `normalize=true` stores. The text of Avro and Protobuf is normal already."""
    return normalized_json_schema(schema) if isinstance(schema, JsonSchema) else schema.text


def compare(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    """Why `reader` cannot read the data of `writer`; nothing if it can."""
    try:
        match reader, writer:
            case AvroSchema(), AvroSchema():
                return compare_avro(reader, writer)
            case JsonSchema(), JsonSchema():
                return compare_json_schema(reader, writer)
            case ProtobufSchema(), ProtobufSchema():
                return compare_protobuf(reader, writer)
            case _:
                return [Difference("SCHEMA_TYPE_CHANGED", "", "The type of the schema changed")]
    except TooManyPairs:
        text = "The schemas are too large to be compared"
        return [Difference("TOO_LARGE", "", text)]
