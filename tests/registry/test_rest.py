"""Covers registry/rest.py, registry/errors.py, registry/registry.py."""

import json
from collections.abc import Iterator

import pytest

from millstream.registry.records import NOOP_KEY
from millstream.testing import Broker
from tests.support.rest_client import CONTENT_TYPE, RestClient
from tests.support.waiting import wait_until

INT, LONG, STRING = '"int"', '"long"', '"string"'


def record(name: str, *fields: object) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


# -- browsers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_page_of_another_site_changes_nothing(
    rest: RestClient, subject: str, method: str, headers: dict[str, str]
) -> None:
    path = f"/subjects/{subject}/versions" if method == "POST" else f"/config/{subject}"
    body = {"schema": INT} if method == "POST" else {"compatibility": "FULL"}
    refused = rest.send(method, path, body, headers)
    assert (refused.status, refused.error_code) == (403, 403)
    assert rest.get(f"/subjects/{subject}/versions").error_code == 40401
    # As for a page of the registry's own address, if there were one.
    own = {"Origin": rest.url, "Sec-Fetch-Site": "same-origin"}
    assert rest.send("POST", f"/subjects/{subject}/versions", {"schema": INT}, own).status == 200


def test_a_page_behind_a_proxy_that_writes_another_host_changes_schemas(
    rest: RestClient, subject: str
) -> None:
    path = f"/subjects/{subject}/versions"
    page = {"Origin": "https://schemas.example", "Sec-Fetch-Site": "same-origin"}
    foreign = {**page, "Host": "schemas.example"}
    assert rest.send("POST", path, {"schema": INT}, foreign).status == 421
    assert rest.send("POST", path, {"schema": INT}, page).status == 200


def test_a_name_that_only_resolves_to_this_machine_is_refused(
    rest: RestClient, subject: str
) -> None:
    foreign = {"Host": "evil.example:8081", "Origin": "http://evil.example:8081"}
    for method, path in (
        ("GET", "/subjects"),
        ("POST", f"/subjects/{subject}/versions"),
        ("DELETE", f"/subjects/{subject}"),
    ):
        refused = rest.send(method, path, {"schema": INT} if method == "POST" else None, foreign)
        assert refused.status == 421
        assert "evil.example" in refused.body["message"]
    port = rest.url.rpartition(":")[2]
    for name in ("localhost", "LOCALHOST", "127.0.0.1", "[::1]"):
        assert rest.get("/subjects", Host=f"{name}:{port}").status == 200


# -- schemas and subjects ----------------------------------------------------------------


def test_a_schema_gets_an_id_and_a_version(rest: RestClient, subject: str) -> None:
    schema_id = rest.register(subject, '{"type": "string"}').body["id"]
    assert rest.register(subject, STRING).body == {"id": schema_id}
    assert rest.get(f"/schemas/ids/{schema_id}").body == {"schema": STRING}
    assert rest.get(f"/schemas/ids/{schema_id}/schema").body == "string"
    expected = {"subject": subject, "version": 1, "id": schema_id, "schema": STRING}
    assert rest.get(f"/subjects/{subject}/versions/1").body == expected
    assert rest.get(f"/subjects/{subject}/versions/latest").body == expected
    assert rest.get(f"/subjects/{subject}/versions/-1").body == expected
    assert rest.get(f"/subjects/{subject}/versions/1/schema").body == "string"
    assert rest.get(f"/subjects/{subject}/versions").body == [1]
    assert rest.post(f"/subjects/{subject}", {"schema": STRING}).body == expected
    assert {"subject": subject, "version": 1} in rest.get(f"/schemas/ids/{schema_id}/versions").body
    assert subject in rest.get(f"/schemas/ids/{schema_id}/subjects").body
    assert rest.get(f"/schemas/ids/{schema_id}?fetchMaxId=true").body["maxId"] >= schema_id


def test_types_other_than_avro_are_named(rest: RestClient, subject: str) -> None:
    made = rest.register(subject, '{"type":"object"}', schemaType="JSON")
    found = rest.get(f"/schemas/ids/{made.body['id']}").body
    assert found == {"schemaType": "JSON", "schema": '{"type":"object"}'}
    assert sorted(rest.get("/schemas/types").body) == ["AVRO", "JSON", "PROTOBUF"]


def test_a_subject_may_have_any_characters(rest: RestClient, subject: str) -> None:
    name = f"{subject}/ä b?%"
    quoted = f"{subject}%2F%C3%A4%20b%3F%25"
    assert rest.register(quoted, INT).status == 200
    assert rest.get(f"/subjects/{quoted}/versions/1").body["subject"] == name
    assert name in rest.get("/subjects").body
    assert rest.get(f"/subjects/:.:{quoted}/versions").body == [1]
    assert rest.register(":.other:x", INT).error_code == 42208


def test_lists_have_pages_and_prefixes(rest: RestClient, subject: str) -> None:
    for number in range(5):
        rest.register(f"{subject}-{number}", INT)
    listed = rest.get(f"/subjects?subjectPrefix={subject}-").body
    assert listed == [f"{subject}-{number}" for number in range(5)]
    page = rest.get(f"/subjects?subjectPrefix={subject}-&offset=1&limit=2").body
    assert page == listed[1:3]
    schemas = rest.get(f"/schemas?subjectPrefix={subject}-&limit=1").body
    assert [each["subject"] for each in schemas] == listed[:1]
    assert rest.get("/subjects?limit=x").error_code == 422


def test_latest_only_lists_one_version_per_subject(rest: RestClient, subject: str) -> None:
    rest.register(subject, INT)
    rest.register(subject, LONG)
    listed = rest.get(f"/schemas?subjectPrefix={subject}").body
    assert [each["version"] for each in listed] == [1, 2]
    latest = rest.get(f"/schemas?subjectPrefix={subject}&latestOnly=true").body
    assert [each["version"] for each in latest] == [2]


def test_what_is_not_there(rest: RestClient, subject: str) -> None:
    rest.register(subject, INT)
    for path, code in (
        ("/subjects/none/versions", 40401),
        ("/subjects/none/versions/1", 40401),
        (f"/subjects/{subject}/versions/9", 40402),
        ("/schemas/ids/999999", 40403),
        ("/schemas/ids/x", 40403),
        ("/schemas/ids/999999/subjects", 40403),
        ("/config/none", 40408),
        ("/mode/none", 40409),
        ("/nothing/there", 404),
    ):
        answer = rest.get(path)
        assert (answer.error_code, answer.status) == (code, 404), path
    assert rest.post(f"/subjects/{subject}", {"schema": STRING}).error_code == 40403
    assert rest.post("/subjects/none", {"schema": STRING}).error_code == 40401
    assert rest.get(f"/subjects/{subject}/versions/0").error_code == 42202


def test_normalize_makes_the_order_of_attributes_irrelevant(rest: RestClient, subject: str) -> None:
    first, second = '{"type":"object","title":"t"}', '{"title":"t","type":"object"}'
    path = f"/subjects/{subject}/versions?normalize=true"
    one = rest.post(path, {"schema": first, "schemaType": "JSON"}).body
    assert rest.post(path, {"schema": second, "schemaType": "JSON"}).body == one
    rest.put(f"/config/{subject}", {"compatibility": "NONE", "normalize": True})
    assert rest.register(subject, second, schemaType="JSON").body == one


# -- references --------------------------------------------------------------------------


def test_references_are_resolved_counted_and_kept(rest: RestClient, subject: str) -> None:
    rest.register(f"{subject}-low", record("Low", {"name": "a", "type": "int"}))
    schema = record("High", {"name": "low", "type": "Low"})
    reference = {"name": "Low", "subject": f"{subject}-low", "version": 1}
    assert rest.register(subject, schema).error_code == 42201
    made = rest.register(subject, schema, references=[reference])
    assert rest.get(f"/schemas/ids/{made.body['id']}").body["references"] == [reference]
    path = f"/subjects/{subject}-low/versions/1"
    assert rest.get(f"{path}/referencedby").body == [made.body["id"]]
    assert rest.delete(path).error_code == 42206
    assert rest.delete(f"/subjects/{subject}-low").error_code == 42206
    latest = {**reference, "version": -1}
    assert rest.register(subject, schema, references=[latest]).body == made.body


def test_a_protobuf_schema_is_given_in_both_forms(rest: RestClient, subject: str) -> None:
    text = 'syntax = "proto3"; message M { string a = 1; }'
    schema_id = rest.register(subject, text, schemaType="PROTOBUF").body["id"]
    found = rest.get(f"/schemas/ids/{schema_id}").body["schema"]
    assert found == 'syntax = "proto3";\n\nmessage M {\n  string a = 1;\n}\n'
    encoded = rest.get(f"/schemas/ids/{schema_id}?format=serialized").body["schema"]
    assert rest.register(subject, encoded, schemaType="PROTOBUF").body == {"id": schema_id}
    assert rest.get(f"/schemas/ids/{schema_id}?format=odd").error_code == 422


# -- deletes -----------------------------------------------------------------------------


def test_a_version_is_deleted_softly_and_then_for_good(rest: RestClient, subject: str) -> None:
    first = rest.register(subject, INT).body["id"]
    rest.register(subject, LONG)
    path = f"/subjects/{subject}/versions"
    assert rest.delete(f"{path}/1?permanent=true").error_code == 40407
    assert rest.delete(f"{path}/1").body == 1
    assert rest.delete(f"{path}/1").error_code == 40406
    assert rest.get(path).body == [2]
    assert rest.get(f"{path}?deleted=true").body == [1, 2]
    assert rest.get(f"{path}/1").error_code == 40402
    assert rest.get(f"{path}/1?deleted=true").status == 200
    assert rest.get(f"/schemas/ids/{first}").status == 200
    assert rest.delete(f"{path}/1?permanent=true").body == 1
    assert rest.get(f"{path}?deleted=true").body == [2]
    assert rest.delete(f"{path}/latest").body == 2


def test_a_subject_is_deleted_softly_and_then_for_good(rest: RestClient, subject: str) -> None:
    unusual = record(f"R{subject.replace('-', '')}")
    schema_id = rest.register(subject, unusual).body["id"]
    path = f"/subjects/{subject}"
    assert rest.delete(f"{path}?permanent=true").error_code == 40405
    assert rest.delete(path).body == [1]
    assert rest.delete(path).error_code == 40404
    assert rest.delete("/subjects/none").error_code == 40401
    assert subject not in rest.get("/subjects").body
    assert subject in rest.get("/subjects?deleted=true").body
    assert subject in rest.get("/subjects?deletedOnly=true").body
    assert rest.post(f"{path}?deleted=true", {"schema": unusual}).body["version"] == 1
    # The same schema again is a new version with the old id.
    assert rest.register(subject, unusual).body == {"id": schema_id}
    assert rest.get(f"{path}/versions").body == [2]
    rest.delete(path)
    assert rest.delete(f"{path}?permanent=true").body == [1, 2]
    assert rest.get(f"/schemas/ids/{schema_id}").error_code == 40403
    assert rest.register(subject, unusual).body["id"] > schema_id
    assert rest.get(f"{path}/versions").body == [1]


# -- compatibility, configs and modes ----------------------------------------------------


def test_an_incompatible_schema_is_refused_with_the_reason(rest: RestClient, subject: str) -> None:
    rest.register(subject, INT)
    refused = rest.register(subject, STRING)
    assert (refused.status, refused.error_code) == (409, 409)
    assert "TYPE_MISMATCH" in refused.body["message"]
    path = f"/compatibility/subjects/{subject}/versions"
    assert rest.post(f"{path}/latest", {"schema": LONG}).body == {"is_compatible": True}
    verbose = rest.post(f"{path}/1?verbose=true", {"schema": STRING}).body
    assert verbose["is_compatible"] is False
    assert any("string cannot read int" in each for each in verbose["messages"])
    assert rest.post(f"{path}?verbose=true", {"schema": LONG}).body == {
        "is_compatible": True,
        "messages": [],
    }
    assert rest.post(f"{path}/7", {"schema": LONG}).error_code == 40402
    assert rest.post("/compatibility/subjects/none/versions/1", {"schema": LONG}).status == 404


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("NONE", {INT, LONG, STRING}),
        ("BACKWARD", {INT, LONG}),
        ("FORWARD", {INT}),
        ("FULL", {INT}),
        ("BACKWARD_TRANSITIVE", {INT, LONG}),
        ("FORWARD_TRANSITIVE", {INT}),
        ("FULL_TRANSITIVE", {INT}),
    ],
)
def test_the_level_of_a_subject_decides(
    rest: RestClient, subject: str, level: str, allowed: set[str]
) -> None:
    rest.register(subject, INT)
    assert rest.put(f"/config/{subject}", {"compatibility": level}).body == {"compatibility": level}
    assert rest.get(f"/config/{subject}").body == {"compatibilityLevel": level}
    path = f"/compatibility/subjects/{subject}/versions/latest"
    found = {
        schema
        for schema in (INT, LONG, STRING)
        if rest.post(path, {"schema": schema}).body["is_compatible"]
    }
    assert found == allowed


def test_the_config_of_a_subject_falls_back_to_that_of_all(rest: RestClient, subject: str) -> None:
    rest.put("/config", {"compatibility": "forward"})
    assert rest.get("/config").body == {"compatibilityLevel": "FORWARD"}
    assert rest.get(f"/config/{subject}").error_code == 40408
    assert rest.get(f"/config/{subject}?defaultToGlobal=true").body == {
        "compatibilityLevel": "FORWARD"
    }
    assert rest.delete(f"/config/{subject}").error_code == 40408
    rest.put(f"/config/{subject}", {"compatibility": "NONE"})
    assert rest.delete(f"/config/{subject}").body == {"compatibilityLevel": "NONE"}
    assert rest.delete("/config").status == 200
    assert rest.get("/config").body == {"compatibilityLevel": "BACKWARD"}
    assert rest.put("/config", {"compatibility": "odd"}).error_code == 42203
    assert rest.put("/config", {}).error_code == 42203
    assert rest.put("/config", {"compatibilityGroup": "x"}).status == 422


def test_modes(rest: RestClient, subject: str) -> None:
    assert rest.get("/mode").body == {"mode": "READWRITE"}
    assert rest.get(f"/mode/{subject}?defaultToGlobal=true").body == {"mode": "READWRITE"}
    assert rest.put(f"/mode/{subject}", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert rest.register(subject, INT).error_code == 42205
    assert rest.delete(f"/mode/{subject}").body == {"mode": "READONLY"}
    assert rest.put(f"/mode/{subject}", {"mode": "IMPORT"}).status == 200
    assert rest.register(subject, INT).error_code == 42205
    free = rest.get("/schemas/ids/1?fetchMaxId=true").body.get("maxId", 0) + 1_000
    unusual = record(f"R{subject.replace('-', '')}")
    assert rest.register(subject, unusual, id=free, version=7).body == {"id": free}
    assert rest.get(f"/subjects/{subject}/versions").body == [7]
    assert rest.put(f"/mode/{subject}", {"mode": "READWRITE"}).status == 200
    assert rest.put(f"/mode/{subject}", {"mode": "IMPORT"}).error_code == 42205
    assert rest.put(f"/mode/{subject}?force=true", {"mode": "IMPORT"}).status == 200
    assert rest.put("/mode", {"mode": "odd"}).error_code == 42204


# -- requests ----------------------------------------------------------------------------


def test_about_the_registry(rest: RestClient) -> None:
    assert rest.get("/").body == {}
    clusters = rest.get("/v1/metadata/id").body["scope"]["clusters"]
    assert clusters["kafka-cluster"]
    assert rest.get("/v1/metadata/version").body["version"].startswith("millstream")
    assert rest.get("/contexts").body == ["."]


def test_answers_have_the_type_that_the_client_prefers(rest: RestClient) -> None:
    assert rest.get("/subjects").content_type == CONTENT_TYPE
    assert rest.get("/subjects", Accept="application/json").content_type == "application/json"
    both = rest.get("/subjects", Accept=f"text/html, {CONTENT_TYPE}; q=0.9, */*; q=0.1")
    assert both.content_type == CONTENT_TYPE
    assert rest.get("/subjects", Accept="text/html").error_code == 406


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"5", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b"{}", 42201),
        (b'{"schema":5}', 42201),
        (b'{"schema":""}', 42201),
        (b'{"schema":"odd"}', 42201),
        (b'{"schema":"{}","schemaType":"XML"}', 42201),
        (b'{"schema":"{}","schemaType":[]}', 42201),
        (b'{"schema":"\\"int\\"","references":5}', 42201),
        (b'{"schema":"\\"int\\"","references":[{}]}', 42201),
        (b'{"schema":"\\"int\\"","references":[{"name":"a","subject":"b","version":1}]}', 42201),
        (b'{"schema":"\\"int\\"","metadata":5}', 42201),
        (b'{"schema":"\\"int\\"","id":"x"}', 42201),
        (b'{"schema":"\\"int\\"","id":5}', 42205),
        (b'{"schema":"' + b"[" * 500_000 + b'"}', 42201),
        (b'{"schema":"' + b"{" * 500_000 + b'","schemaType":"JSON"}', 42201),
        (b'{"schema":"' + b"message A {" * 50_000 + b'","schemaType":"PROTOBUF"}', 42201),
        (b'{"schema":"' + b"x" * (2 << 20) + b'"}', 413),
        (b'{"schema":"\\ud800"}', 42201),
        (b'{"schema":"\xed\xa0\x80"}', 400),
        (b'{"schema":"\\"int\\"","metadata":{"\\ud800":"x"}}', 42201),
        (b'{"schema":"{\\"type\\":\\"int\\",\\"doc\\":\\"\\\\ud800\\"}"}', 42201),
        (b'{"schema":"{\\"title\\":\\"\\\\udfff\\"}","schemaType":"JSON"}', 42201),
        (
            b'{"schema":"syntax=\\"proto3\\"; package a; option java_package = \\"\\\\ud800\\";"'
            b',"schemaType":"PROTOBUF"}',
            42201,
        ),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, bytes) else None,
)
def test_bad_requests_get_their_code_and_stop_nothing(
    rest: RestClient, subject: str, body: bytes, code: int
) -> None:
    answer = rest.send("POST", f"/subjects/{subject}/versions", body)
    assert answer.error_code == code
    assert answer.body["message"]
    assert rest.get("/").status == 200


def test_bodies_of_another_type_are_refused(rest: RestClient, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    answer = rest.send("POST", path, b"schema=x", {"Content-Type": "text/plain"})
    assert answer.error_code == 415
    plain = {"Content-Type": "application/json; charset=utf-8"}
    assert rest.send("POST", path, b'{"schema":"\\"int\\""}', plain).status == 200


def test_metadata_and_rules_are_kept(rest: RestClient, subject: str) -> None:
    metadata, rules = {"properties": {"owner": "me"}}, {"domainRules": []}
    schema_id = rest.register(subject, INT, metadata=metadata, ruleSet=rules).body["id"]
    found = rest.get(f"/schemas/ids/{schema_id}").body
    assert (found["metadata"], found["ruleSet"]) == (metadata, rules)
    assert rest.register(f"{subject}-other", INT).body["id"] != schema_id


# -- restarts ----------------------------------------------------------------------------


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker


def test_a_restart_keeps_everything(own_broker: Broker) -> None:
    rest = RestClient(own_broker.registry_url)
    rest.register("a", INT)
    rest.register("a", LONG)
    rest.register("b", '{"type":"object"}', schemaType="JSON")
    rest.register("c", STRING)
    rest.put("/config", {"compatibility": "FULL"})
    rest.put("/config/a", {"compatibility": "NONE"})
    rest.put("/mode/b", {"mode": "READONLY"})
    rest.delete("/subjects/a/versions/1")
    rest.delete("/subjects/c")

    def everything() -> list[object]:
        paths = ["/schemas?deleted=true", "/subjects", "/config", "/config/a", "/mode/b"]
        paths.append("/subjects/a/versions?deleted=true")
        return [rest.get(path).body for path in paths]

    before = everything()
    own_broker.stop()
    own_broker.start()
    assert everything() == before
    assert rest.register("d", '"bytes"').body == {"id": 5}


def test_the_topic_is_compacted_and_has_the_records_of_other_registries(
    own_broker: Broker,
) -> None:
    rest = RestClient(own_broker.registry_url)
    rest.register("a", INT)
    rest.delete("/subjects/a")
    rest.delete("/subjects/a?permanent=true")

    def last_key() -> bytes | None:
        return own_broker.topic("_schemas").records()[-1].key

    # Karapace waits until it has read the last offset, and a marker is never read.
    wait_until(lambda: last_key() == NOOP_KEY, "a plain record follows the transaction")
    records = own_broker.topic("_schemas").records()
    assert records[-1].offset + 1 == own_broker.topic("_schemas").end_offsets()[0]
    found = [(json.loads(each.key or b"")["keytype"], each.value is None) for each in records]
    changes = [one for one in found if one != ("NOOP", True)]
    assert changes == [("SCHEMA", False), ("DELETE_SUBJECT", False), ("SCHEMA", True)]
