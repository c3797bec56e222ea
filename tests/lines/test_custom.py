"""Functions of users, which may do anything."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from millstream.lines.custom import call_parser, load_parser, parse_rows


def lines(*texts: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["s"] * len(texts)),
            pa.array(texts, pa.string()),
            pa.array([0] * len(texts), pa.timestamp("us", tz="UTC")),
        ],
        ["source", "line", "record_time"],
    )


def as_line(batch: pa.RecordBatch) -> pa.Table:
    """In several pieces, as tables may come."""
    names, parts = ["msg", "status"], [batch.column("line"), pa.array(range(batch.num_rows))]
    table = pa.table(dict(zip(names, parts, strict=True)))
    return pa.concat_tables([table.slice(0, 1), table.slice(1)])


def as_source(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column("source")], ["msg"])


def test_rows_go_to_the_parser_that_is_chosen_and_come_back_in_order() -> None:
    chosen = np.array([0, 1, -1, 0, 0])
    found = parse_rows(lines("a", "b", "c", "d", None), [as_line, as_source], chosen)
    assert found.to_pylist() == [
        [("msg", "a"), ("status", "0")],
        [("msg", "s")],
        None,
        [("msg", "d"), ("status", "1")],
        None,
    ]


def test_one_parser_that_fails_leaves_the_rows_of_another() -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("not today")

    found = parse_rows(lines("a", "b", "c"), [fails, as_source], np.array([0, 1, 0]))
    assert found.to_pylist() == [None, [("msg", "s")], None]


def test_no_row_for_any_parser() -> None:
    assert parse_rows(lines("a"), [as_line], np.array([-1])).to_pylist() == [None]


@pytest.mark.parametrize(
    "parse",
    [
        lambda batch: 1 / 0,
        lambda batch: None,
        lambda batch: as_source(batch.slice(1)),
        lambda batch: pa.table({"msg": pa.array([[1], [2]])}),
        lambda batch: pa.table({"msg": pa.array([b"\xff", b"a"])}),
    ],
)
def test_a_function_that_fails_reads_nothing_and_is_told(
    parse: "object", caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = call_parser(parse, lines("a", "b"))  # type: ignore[arg-type]
    assert found.to_pylist() == [None, None]
    assert "failed" in caplog.text


def test_columns_of_one_name_are_taken_as_they_are() -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column("line")
        return pa.RecordBatch.from_arrays([column, column], ["msg", "msg"])

    assert call_parser(twice, lines("a")).to_pylist() == [[("msg", "a"), ("msg", "a")]]


def test_no_columns_are_no_fields() -> None:
    def nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select([])

    assert len(call_parser(nothing, lines("a", "b"))) == 2


def test_a_parser_is_found_by_its_name() -> None:
    assert load_parser("tests.pipeline.custom_parsers:parse_never").__name__ == "parse_never"
