"""Entities with options, and who is told of a change."""

import pytest

from millstream.cluster.client_entities import ClientEntities, ClientEntity

USER = ClientEntity(user="u")
DEFAULT_CLIENT = ClientEntity(client_id="")


def test_listeners_hear_what_changed_and_nothing_else():
    entities = ClientEntities()
    seen = []
    entities.listeners.append(seen.append)
    entities.put(USER, {"a": "1"})
    entities.put(USER, {"a": "1"})
    entities.replace({USER: {"a": "1"}, DEFAULT_CLIENT: {"b": "2"}})
    entities.put(USER, {})
    entities.put(USER, {})
    assert seen == [{USER}, {DEFAULT_CLIENT}, {USER}]
    assert entities.options == {DEFAULT_CLIENT: {"b": "2"}}
    assert entities.options_of(USER) == {}


def test_an_entity_is_a_client_or_an_address():
    for parts in ({}, {"user": "u", "ip": "1.2.3.4"}):
        with pytest.raises(AssertionError):
            ClientEntity(**parts)


def test_an_entity_names_its_parts():
    assert str(ClientEntity(user="u", client_id="")) == "user 'u', client id <default>"
    assert str(ClientEntity(ip="::1")) == "ip '::1'"
