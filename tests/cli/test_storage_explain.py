"""`millstream storage index|explain|cache|forecast` on Kafka's files."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import run_millstream

KAFKA = Path(__file__).parent.parent / "golden" / "kafka_4_3_0"
PARTITION = str(KAFKA / "mixed-0")


def test_an_offset_is_explained() -> None:
    ran = run_millstream("storage", "explain", PARTITION, "63")
    assert ran.exit_code == 0, ran.errors
    assert "00000000000000000062.log" in ran.output
    told = json.loads(run_millstream("storage", "explain", PARTITION, "63", "--json").output)
    assert told["fetch"]["segment"] == 62
    assert told["fetch"]["batch"]["base_offset"] <= 63 <= told["fetch"]["batch"]["last_offset"]
    assert told["time"] is None


def test_a_time_is_explained() -> None:
    told = json.loads(
        run_millstream("storage", "explain", PARTITION, "@2001-01-01", "--json").output
    )
    assert told["time"]["offset"] == told["fetch"]["offset"]


def test_indexes_pages_and_removals_are_shown() -> None:
    told = json.loads(run_millstream("storage", "index", PARTITION, "--json").output)
    assert {each["segment"] for each in told["times"]} == {0, 62}
    ran = run_millstream("storage", "cache", str(KAFKA), "--json")
    if ran.exit_code:
        assert "Linux 6.5" in ran.errors
    else:
        assert all(each["cached"] <= each["pages"] for each in json.loads(ran.output))
    told = json.loads(
        run_millstream("storage", "forecast", PARTITION, "--retention-ms", "0", "--json").output
    )
    assert [each["base_offset"] for each in told] == [0, 62]
    table = run_millstream("storage", "forecast", PARTITION, "--retention-ms", "0").output
    assert "now" in table


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["explain", PARTITION, "soon"], 2, "is not beginning"),
        (["explain", PARTITION, "end"], 2, "name an offset"),
        (["explain", "EMPTY", "1"], 1, "has no segments"),
        (["index", "EMPTY"], 1, "has no segments"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    ran = run_millstream(
        "storage", *[str(tmp_path) if each == "EMPTY" else each for each in arguments]
    )
    assert ran.exit_code == code
    assert text in ran.errors
