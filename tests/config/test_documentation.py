from pathlib import Path

from millstream.config import (
    BROKER_OPTIONS,
    CLIENT_METRICS_OPTIONS,
    GROUP_OPTIONS,
    TOPIC_OPTIONS,
)
from millstream.config.documentation import configuration_page

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_in_docs_is_what_the_table_says():
    assert PAGE.read_text() == configuration_page()


def test_every_option_is_on_the_page():
    page = PAGE.read_text()
    for name in (*BROKER_OPTIONS, *TOPIC_OPTIONS, *GROUP_OPTIONS, *CLIENT_METRICS_OPTIONS):
        assert f"| `{name}` |" in page, name
