"""What is served is what the docs say, and every declaration finds its handler by its name."""

import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.requests.routes import load_route, parts_of, served_apis
from millstream.broker.requests.services import Services
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.security.operations import TABLE, Denied
from millstream.wire.message import Api

ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+)(?:-(\d+))?(?: \((\d+)-\d+\))? \|", re.MULTILINE)


def test_the_docs_list_exactly_what_is_served() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    documented = {
        int(key): (int(low), int(high or low), int(listed or low))
        for key, low, high, listed in ROW.findall(text)
    }
    assert documented == {
        api.key: (api.min_version, api.max_listed, api.min_listed) for api in served_apis()
    }


def test_every_handler_has_its_declaration() -> None:
    import millstream.broker.handlers as handlers

    [folder] = handlers.__path__
    files = {file.stem for file in Path(folder).glob("[!_]*.py")}
    assert files == {api.name for api in served_apis()}


# The parts of a node by name, as handlers may ask for them.
PARTS = {
    **get_type_hints(Services),
    "groups": GroupCoordinators,
    "transactions": TransactionCoordinator,
    "sharing": Sharing,
    "authentication": Authentication,
    "tokens": Tokens,
}
SERVICES: Any = SimpleNamespace(**dict.fromkeys([*PARTS, "parts"]))


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_every_handler_is_typed_by_its_declaration_and_asks_for_parts_that_there_are(
    api: Api,
) -> None:
    route = load_route(api, SERVICES)
    assert callable(route.handle or route.handle_frame)
    handle = import_module(f"millstream.broker.handlers.{api.name}").handle
    types = get_type_hints(handle)
    if route.handle is not None:
        assert types["body"] is api.request
        assert api.response.__name__ in str(types["return"])
    for name in parts_of(handle):
        if name == "parts":
            # A protocol of its own: what it names has to be there, and to be of that type.
            asked = types[name]
            properties = [
                part for part, value in vars(asked).items() if isinstance(value, property)
            ]
            assert properties
            for part in properties:
                asked_type = get_type_hints(vars(asked)[part].fget)["return"]
                assert asked_type == PARTS[part], part
        else:
            assert types[name] is PARTS[name], name


def test_behaviour_is_stated_by_the_handlers() -> None:
    routes = [load_route(api, SERVICES) for api in served_apis()]
    assert {route.api.name for route in routes if route.handle_frame} == {
        "produce",
        "fetch",
        "offset_commit",
    }
    assert {route.api.name for route in routes if route.holds_next_request} == {
        "create_topics",
        "delete_topics",
        "delete_records",
        "create_partitions",
        "alter_configs",
        "incremental_alter_configs",
        "metadata",
        "add_partitions_to_txn",
        "txn_offset_commit",
        "end_txn",
        "sasl_authenticate",
        "alter_user_scram_credentials",
        "create_delegation_token",
        "renew_delegation_token",
        "expire_delegation_token",
        "create_acls",
        "alter_client_quotas",
        "delete_acls",
        "unregister_broker",
        "push_telemetry",
    }


def test_requests_that_can_be_denied_as_a_whole_say_how() -> None:
    routes = [load_route(api, SERVICES) for api in served_apis()]
    can_be_denied = {
        api.name
        for api in served_apis()
        if any(rule.denied is Denied.REQUEST for rule in TABLE[api.key].rules)
    }
    assert {route.api.name for route in routes if route.refuse} == can_be_denied
