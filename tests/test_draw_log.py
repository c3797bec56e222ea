"""The figures of docs/how_the_log_works.md: the script that draws them works; they are there."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PARTITION = PROJECT / "tests" / "golden" / "kafka_4_3_0" / "mixed-0"
KEPT = PROJECT / "docs" / "images" / "log"


def texts(path: Path) -> list[str]:
    """What is written in a picture."""
    return [each.text or "" for each in ElementTree.parse(path).iter() if each.tag.endswith("text")]


def test_a_partition_of_any_kafka_can_be_drawn(tmp_path: Path) -> None:
    script = PROJECT / "scripts" / "draw_log.py"
    subprocess.run([sys.executable, script, PARTITION, "0", tmp_path], check=True, timeout=120)
    files = sorted(PARTITION.glob("*.log"))
    assert [text for text in texts(tmp_path / "segments.svg") if text.endswith(".log")] == [
        file.name for file in files
    ]
    assert texts(tmp_path / "lookup.svg")[0].startswith("1. The file")


def test_the_page_shows_drawn_figures() -> None:
    page = (PROJECT / "docs" / "how_the_log_works.md").read_text()
    for name in ("segments", "lookup"):
        assert f"images/log/{name}.svg" in page
        assert texts(KEPT / f"{name}.svg")
