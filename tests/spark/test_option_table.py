"""The table of options is what the documentation shows."""

from pathlib import Path

from millstream.spark.option_table import OPTIONS, REFUSED_KAFKA_OPTIONS, markdown_rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_documentation_has_every_option_as_the_table_has_it() -> None:
    lines = DOCUMENT.read_text().splitlines()
    first = lines.index("|---|---|---|---|") + 1
    assert lines[first : first + len(OPTIONS)] == markdown_rows()


def test_the_documentation_names_what_is_refused() -> None:
    text = DOCUMENT.read_text()
    for name in REFUSED_KAFKA_OPTIONS:
        assert name in text or name.endswith("serializer"), name
