"""The documentation site: built strictly, and every link inside it leads somewhere, offline."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

PROJECT = Path(__file__).parent.parent


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        # What a browser would load by itself.
        self.loaded: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.names.add(str(found["id"]))
        for name in ("href", "src"):
            target = found.get(name)
            if target is None:
                continue
            if tag == "a":
                self.targets.append(target)
            elif found.get("rel") != "canonical":
                self.loaded.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: Links() for page in site.rglob("*.html")}
    for page, links in pages.items():
        links.feed(page.read_text(encoding="utf-8"))
    broken = []
    for page, links in pages.items():
        for target in links.targets + links.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            name = unquote(parts.fragment)
            is_named = path not in pages or name.startswith("__") or name in pages[path].names
            if not path.exists() or (name and not is_named):
                broken.append((page.name, target))
    assert broken == []


@pytest.mark.slow
def test_a_browser_loads_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        links = Links()
        links.feed(page.read_text(encoding="utf-8"))
        assert [target for target in links.loaded if urlsplit(target).netloc] == [], page


@pytest.mark.slow
def test_generated_pages_have_every_command_and_fixture(site: Path) -> None:
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for name in ("millstream topic create", "millstream storage explain", "millstream dev"):
        assert re.search(rf"<h\d[^>]*>{name}", commands), name
    python = (site / "reference" / "python_api.html").read_text(encoding="utf-8")
    for name in ("make_topic", "create_topic", "kafka_bootstrap"):
        assert name in python
