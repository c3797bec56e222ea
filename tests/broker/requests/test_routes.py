"""What is served is what the docs say, and every declaration finds its handler by its name."""

import re
from pathlib import Path

import pytest

from millstream.broker.requests.routes import load_route, served
from millstream.wire.message import Api

ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+)(?:-(\d+))?(?: \((\d+)-\d+\))? \|", re.MULTILINE)


def test_the_docs_list_exactly_what_is_served() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    documented = {
        int(key): (int(low), int(high or low), int(listed or low))
        for key, low, high, listed in ROW.findall(text)
    }
    assert documented == {
        key: (api.min_version, api.max_listed, api.min_listed) for key, api in served().items()
    }


def test_every_handler_has_its_declaration() -> None:
    import millstream.broker.handlers as handlers

    [folder] = handlers.__path__
    files = {file.stem for file in Path(folder).glob("[!_]*.py")}
    assert files == {api.name for api in served().values()}


@pytest.mark.parametrize("api", served().values(), ids=lambda api: api.name)
def test_every_handler_is_typed_by_its_declaration(api: Api) -> None:
    route = load_route(api)
    if route.handle is None:
        assert callable(route.handle_frame)
        return
    types = route.handle.__annotations__
    assert types["body"] is api.request
    assert api.response.__name__ in str(types["return"])


def test_behaviour_is_stated_by_the_handlers() -> None:
    routes = [load_route(api) for api in served().values()]
    assert {route.api.name for route in routes if route.handle_frame} == {
        "produce",
        "fetch",
        "offset_commit",
    }
    assert {route.api.name for route in routes if route.holds_next_request} == {
        "create_topics",
        "delete_topics",
        "create_partitions",
        "alter_configs",
        "incremental_alter_configs",
        "metadata",
        "add_partitions_to_txn",
        "txn_offset_commit",
        "end_txn",
    }
