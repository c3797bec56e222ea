"""The data source that Spark knows as `millstream`: dispatches to reader, stream and writer."""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import layout_of, parse_read_options

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def read_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a read; Spark asks for them before a write as well."""
    return StructType([StructField(name, _TYPES[name]) for name in layout_of(options).columns])


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    from millstream.spark.reader import BatchReader

    _check_schema(options, schema)
    return BatchReader(parse_read_options(options, Use.BATCH_READ))


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    from millstream.spark.stream import StreamReader

    _check_schema(options, schema)
    return StreamReader(parse_read_options(options, Use.STREAM_READ))


def _check_schema(options: Mapping[str, str], schema: StructType) -> None:
    expected = read_schema(options)
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in expected]:
        raise SourceError(
            "SCHEMA_IS_FIXED",
            f"A topic is read with the columns {expected.simpleString()}; a custom schema "
            "is not possible. Choose among them with the option 'columns', and convert them "
            "with DataFrame operations",
        )


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    from millstream.spark.write_options import parse_write_options
    from millstream.spark.writer import BatchWriter
    from millstream.spark.writing import check_topic

    if overwrite:
        raise SourceError(
            "NO_OVERWRITE", "A topic cannot be overwritten, only appended to: use .mode('append')"
        )
    parsed = parse_write_options(options, schema, Use.BATCH_WRITE)
    check_topic(parsed)
    return BatchWriter(parsed)


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    from millstream.spark.write_options import parse_write_options
    from millstream.spark.writer import StreamWriter
    from millstream.spark.writing import check_topic

    parsed = parse_write_options(options, schema, Use.STREAM_WRITE)
    check_topic(parsed)
    return StreamWriter(parsed)
