"""Every code block of the README, tutorials, guides and docs/security.md runs as written."""

from pathlib import Path

import pytest

from tests.support.documents import Reader, blocks

PROJECT = Path(__file__).parent.parent
PAGES = sorted(
    [
        PROJECT / "README.md",
        PROJECT / "docs" / "index.md",
        PROJECT / "docs" / "how_the_log_works.md",
        PROJECT / "docs" / "security.md",
        *PROJECT.glob("docs/tutorials/*.md"),
        *PROJECT.glob("docs/how_to/*.md"),
        *PROJECT.glob("docs/coming_from/*.md"),
    ]
)
# Spark, or a ZooKeeper.
NEED_JAVA = {"analyse_your_logs", "security", "three_nodes"}
# Only texts and tables.
WITHOUT_CODE = {"kafka", "redpanda", "testcontainers", "moto", "kfake", "continuous_integration"}


def marked(page: Path) -> object:
    marks = [pytest.mark.slow, pytest.mark.timeout(600)]
    if page.stem in NEED_JAVA:
        marks += [pytest.mark.java]
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize(
    "document", [marked(page) for page in PAGES if page.stem not in WITHOUT_CODE]
)
def test_the_examples_of_a_page_work(document: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        assert reader.follow(document) > 0


def test_pages_without_code_have_none() -> None:
    assert {page.stem for page in PAGES if not blocks(page.read_text())} == WITHOUT_CODE


def test_there_are_four_tutorials() -> None:
    assert len(list(PROJECT.glob("docs/tutorials/*.md"))) == 4


def test_a_block_has_the_mark_of_the_comment_before_it() -> None:
    text = "<!-- test: background -->\n```sh\na\n```\n\n```yaml\nb\n```\n```python\nc\n```\n"
    assert [(b.mark, b.language, b.code) for b in blocks(text)] == [
        ("background", "sh", "a\n"),
        ("", "python", "c\n"),
    ]
    with pytest.raises(AssertionError, match="unknown marks"):
        blocks("<!-- test: skip -->\n```sh\na\n```\n")
