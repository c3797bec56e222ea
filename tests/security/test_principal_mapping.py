"""Subjects as Java prints them, and names by rules. The expected texts of subjects are what
X500Principal.getName() of Java 17 gives for the same certificates."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import NameAttribute, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from millstream.config import ConfigError
from millstream.model import ANONYMOUS
from millstream.security.certificate_subject import subject_name
from millstream.security.principal_mapping import (
    NoRuleMatches,
    mapped_name,
    parse_rules,
    principal_of,
)

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*parts: NameAttribute | RelativeDistinguishedName) -> bytes:
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(x509.Name([NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1 << 140)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2036, 1, 1, tzinfo=UTC))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


def common(name: str) -> NameAttribute:
    return NameAttribute(NameOID.COMMON_NAME, name)


def organization(name: str) -> NameAttribute:
    return NameAttribute(NameOID.ORGANIZATION_NAME, name)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [
                NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                organization("Acme"),
                NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Eng"),
                common("alice"),
            ],
            "CN=alice,OU=Eng,O=Acme,C=DE",
        ),
        (
            [organization('a,b+c"d\\e<f>g;h=i#j'), common(" lead and trail ")],
            r"CN=\ lead and trail\ ,O=a\,b\+c\"d\\e\<f\>g\;h\=i\#j",
        ),
        # No one gets another's name by commas of their own.
        ([common("mallory,OU=Eng"), organization("x")], r"O=x,CN=mallory\,OU\=Eng"),
        ([common("#hash=x")], r"CN=\#hash\=x"),
        ([common("a\0b")], r"CN=a\00b"),
        ([common("a\nb\tc\rd")], "CN=a\nb\tc\rd"),
        ([common("\rb  ")], "CN=\\\rb\\ \\ "),
        ([common("  ")], "CN=\\ \\ "),
        ([common("Jürgen 日本 😀")], "CN=Jürgen 日本 😀"),
        (
            [NameAttribute(NameOID.COMMON_NAME, "bmpé", _type=_ASN1Type.BMPString)],
            "CN=\\00b\\00m\\00p\\00\ufffd",
        ),
        (
            [
                NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c", _type=_ASN1Type.IA5String),
                common("x"),
            ],
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                RelativeDistinguishedName([common("x"), NameAttribute(NameOID.USER_ID, "u1")]),
                RelativeDistinguishedName([organization("o")]),
            ],
            "O=o,CN=x+UID=u1",
        ),
        (
            [
                NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "S"),
                NameAttribute(NameOID.LOCALITY_NAME, "L"),
                NameAttribute(NameOID.STREET_ADDRESS, "str"),
                NameAttribute(NameOID.DOMAIN_COMPONENT, "dc"),
                NameAttribute(NameOID.USER_ID, "uid"),
                NameAttribute(NameOID.TITLE, "T"),
                NameAttribute(NameOID.SERIAL_NUMBER, "5"),
                common("x"),
            ],
            "CN=x,2.5.4.5=#130135,2.5.4.12=#0c0154,UID=uid,DC=dc,STREET=str,L=L,ST=S",
        ),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    parts: list[NameAttribute | RelativeDistinguishedName], expected: str
) -> None:
    assert subject_name(certificate(*parts)) == expected


def test_a_long_value_of_an_unknown_attribute_is_written_whole() -> None:
    title = NameAttribute(NameOID.TITLE, "t" * 60)
    dotted = NameAttribute(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), "v" * 300)
    text = subject_name(certificate(title, dotted))
    first, second = text.split(",")
    assert first == "1.3.6.1.4.1.99999.1=#0c82012c" + b"v".hex() * 300
    assert second == "2.5.4.12=#0c3c" + b"t".hex() * 60


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=alice,OU=Eng", "CN=alice,OU=Eng"),
        ("", "CN=alice", "CN=alice"),
        ("RULE:^CN=(.*?),OU=Eng.*$/$1/", "CN=alice,OU=Eng,O=Acme", "alice"),
        ("RULE:^CN=(.*?),.*$/$1@x/U", "CN=alice,OU=Eng", "ALICE@X"),
        ("RULE:^CN=(.*?),.*$/$1/L , DEFAULT", "CN=Alice,OU=Eng", "alice"),
        ("RULE:^CN=(.*?),OU=Ops.*$/$1/, DEFAULT", "CN=alice,OU=Eng", "CN=alice,OU=Eng"),
        ("RULE:CN=(.*?),OU=(.*?)(,.*)?/$2-$1/", "CN=alice,OU=Eng", "Eng-alice"),
        (r"RULE:^CN=(.*?)\/(.*?)$/$1\/$2/", "CN=a/b", "a/b"),
        (r"RULE:CN=(.*)/\$1/", "CN=a", "$1"),
        ("RULE:CN=(a)|CN=(b)/$1$2/", "CN=b", "b"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, subject: str, name: str) -> None:
    assert mapped_name(subject, parse_rules(rules)) == name


def test_a_pattern_has_to_match_the_whole_subject() -> None:
    with pytest.raises(NoRuleMatches, match="no rule for 'CN=alice,OU=Eng'"):
        mapped_name("CN=alice,OU=Eng", parse_rules("RULE:CN=(alice)/$1/"))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("RULE:x", "neither DEFAULT nor"),
        ("default", "neither DEFAULT nor"),
        ("RULE:(x/$1/", "no pattern of RE2"),
        ("RULE:x(?=y)/$1/", "no lookaround"),
        ("RULE:x/$1/", "the pattern has 0"),
        ("RULE:(x)/$1/X", "neither DEFAULT nor"),
    ],
)
def test_a_wrong_rule_is_refused(rules: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_rules(rules)


def test_a_pattern_that_backtracks_elsewhere_takes_no_time() -> None:
    with pytest.raises(NoRuleMatches):
        mapped_name("CN=" + "a" * 4000 + "!", parse_rules("RULE:CN=(a+)+b/$1/"))


def test_principals_are_users_and_without_a_certificate_anonymous() -> None:
    rules = parse_rules("DEFAULT")
    assert principal_of(None, rules) == ANONYMOUS
    assert principal_of(certificate(common("alice")), rules) == "User:CN=alice"


def test_a_subject_of_any_length_is_not_kept() -> None:
    parts = [organization("o" * 60) for _ in range(100)]
    with pytest.raises(NoRuleMatches, match="characters"):
        principal_of(certificate(*parts), parse_rules("DEFAULT"))
