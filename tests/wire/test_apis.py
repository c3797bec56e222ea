"""The table of APIs is what the docs say, and every row can be served."""

import importlib
import re
from pathlib import Path

import pytest

from millstream.wire.apis import APIS, Api

ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+)(?:-(\d+))?(?: \((\d+)-\d+\))? \|", re.MULTILINE)


def test_the_docs_list_exactly_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    documented = {
        int(key): (int(low), int(high or low), int(listed or low))
        for key, low, high, listed in ROW.findall(text)
    }
    assert documented == {
        int(key): (api.min_version, api.highest_listed, api.lowest_listed)
        for key, api in APIS.items()
    }


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_every_api_has_its_handler(api: Api) -> None:
    module = importlib.import_module(f"millstream.broker.handlers.{api.key.name.lower()}")
    assert callable(module.handle)
