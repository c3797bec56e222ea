"""Covers registry/formats/protobuf.py, registry/formats/proto_text.py,
registry/formats/proto_tokens.py, registry/formats/proto_printing.py."""

import base64
import time

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2

from millstream.registry.formats.protobuf import parse_protobuf
from millstream.registry.formats.text import Dependency, InvalidSchema

EVERYTHING = """
// A comment.
syntax = "proto3"; package a.b; /* another
*/ import "google/protobuf/timestamp.proto";
option java_package = "x.y"; option (my.opt).foo = { a: 1 b: "x" };
message M {
  int32 id = 1 [deprecated=true, (x.y)=5]; optional string s = 2; repeated N ns = 3;
  map<string, N> m = 4; oneof o { string x = 5; int64 y = 6; }
  message N { E e = 1; } enum E { Z = 0; A = 1; B = -0x1 [deprecated = true]; }
  reserved 10 to 12, 15; reserved "foo"; google.protobuf.Timestamp t = 20 [json_name = "T"];
}
service S { rpc Get(M) returns (stream M) { option deprecated = true; }
  rpc Put(stream M.N) returns (M); }
"""
CANONICAL = """syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "x.y";
option (my.opt).foo = { a : 1 b : "x" };

message M {
  int32 id = 1 [deprecated = true, (x.y) = 5];
  optional string s = 2;
  repeated M.N ns = 3;
  map<string, M.N> m = 4;
  oneof o {
    string x = 5;
    int64 y = 6;
  }
  .google.protobuf.Timestamp t = 20 [json_name = "T"];
  reserved 10 to 12, 15;
  reserved "foo";
  enum E {
    Z = 0;
    A = 1;
    B = -1 [deprecated = true];
  }
  message N {
    M.E e = 1;
  }
}

service S {
  rpc Get (M) returns (stream M) {
    option deprecated = true;
  }
  rpc Put (stream M.N) returns (M);
}
"""
PROTO2 = r"""syntax = "proto2";

enum E {
  option allow_alias = true;
  A1 = 1;
  B1 = 1;
  reserved 5, 7 to max;
}

message A {
  required int32 a = 1 [default = 5];
  optional bytes b = 2 [default = "a\001\"x"];
  optional group G = 3 {
    optional string x = 1;
  }
  extensions 100 to max;
}
extend A {
  optional string z = 100;
}
"""
EDITION = """edition = "2023";

message A {
  int32 a = 1 [features.field_presence = IMPLICIT];
}
"""


def test_the_text_is_canonical() -> None:
    assert parse_protobuf(EVERYTHING).text == CANONICAL


@pytest.mark.parametrize("text", [CANONICAL, PROTO2, EDITION], ids=["proto3", "proto2", "2023"])
def test_text_and_descriptor_say_the_same(text: str) -> None:
    schema = parse_protobuf(text)
    assert schema.text == text
    assert parse_protobuf(schema.serialized()).text == text


def test_files_that_come_with_protobuf_can_be_registered_as_clients_send_them() -> None:
    encoded = base64.b64encode(wrappers_pb2.DESCRIPTOR.serialized_pb).decode()
    assert "message StringValue {\n  string value = 1;\n}" in parse_protobuf(encoded).text


def test_a_name_that_could_be_another_is_written_in_full() -> None:
    text = (
        'syntax = "proto3"; package p; message A { message B {} B x = 1; .p.B y = 2; } message B {}'
    )
    canonical = parse_protobuf(text).text
    assert ".p.A.B x = 1;" in canonical or "A.B x = 1;" in canonical
    assert ".p.B y = 2;" in canonical
    assert parse_protobuf(canonical).text == canonical


def test_a_descriptor_with_options_that_only_others_know_is_kept_as_it_came() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    # Field 50000 of the options, as an extension would be.
    message.options.MergeFromString(b"\x80\xb5\x18\x01")
    encoded = base64.b64encode(file.SerializeToString()).decode()
    assert parse_protobuf(encoded).text == encoded


def test_imports_are_found_among_the_references() -> None:
    low = Dependency("low.proto", 'syntax = "proto3"; package l; message L { string a = 1; }')
    middle = Dependency(
        "middle.proto",
        'syntax = "proto3"; import public "low.proto"; message Mid { l.L low = 1; }',
    )
    text = 'syntax = "proto3"; import "middle.proto"; message M { Mid m = 1; l.L l = 2; }'
    assert "Mid m = 1" in parse_protobuf(text, [low, middle]).text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message A { string a = 1; }", "proto2 needs"),
        ('syntax="proto3"; message A { string a 1; }', "line 1, column 39: expected '='"),
        ('syntax="proto3";\nmessage A { string a = 1; string b = 1; }', "duplicate field number"),
        ('syntax="proto3"; message A { Foo a = 1; }', "Foo"),
        ('syntax="proto3"; import "x.proto"; message A{}', "Name the schema"),
        ('syntax="proto3"; message A { string a = 99999999999; }', "whole number"),
        ('syntax="proto3"; message A { string a = ' + "9" * 5000 + "; }", "whole number"),
        ('syntax="proto4";', "unknown syntax"),
        ('edition="1999";', "unknown edition"),
        ("message A {" * 100, "nested deeper"),
        ('"', "unexpected"),
        ("/*", "unexpected"),
        ("message", "expected a name"),
        ("message A.B {}", "without dots"),
        ("message A { reserved", "whole number"),
        ("option a = {{{", "before the end"),
        ("enum E {", "before the end"),
        ("enum E { option allow_alias = 5; A = 0; }", "true or false"),
        ("service S { rpc X(stream", "expected a name"),
        ("aGVsbG8=", "unexpected 'aGVsbG8'"),
        ('import "google/protobuf/../x.proto";', "unknown"),
        ("option = 5;", "name of an option"),
        ("option a = ;", "a value"),
        ('syntax="proto3"; message A { oneof x { map<string,string> a = 1; } }', "refuses"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse_protobuf(text)


def test_a_long_schema_takes_linear_time() -> None:
    messages = "".join(f"message M{n} {{ string a = 1; M{n} b = 2; }}\n" for n in range(5_000))
    started = time.process_time()
    parse_protobuf(f'syntax = "proto3"; {messages}')
    assert time.process_time() - started < 20
