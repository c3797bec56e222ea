"""The server's side of SCRAM, with the RFC's own examples and with everything a stranger may
send."""

import base64
import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.security.sasl.outcome import AuthenticationFailed
from millstream.security.sasl.scram import (
    HASHES,
    MESSAGE_BYTES_MAX,
    ScramExchange,
    credential_of,
    decode_credential,
    encode_credential,
    is_password,
    new_credential,
    no_credential,
    read_client_first,
    salted_password,
)
from tests.support.sasl_node import scram_final

SHA_256 = "SCRAM-SHA-256"


def exchange(password="pencil", first=b"n,,n=user,r=client", mechanism=SHA_256, server="server"):
    read = read_client_first(first)
    credential = new_credential(mechanism, password, salt=b"salt", iterations=4096)
    return ScramExchange(mechanism, read, credential, server_nonce=server)


def client_final(
    server_first: bytes, first_bare: bytes, password="pencil", *, mechanism=SHA_256, binding="biws"
) -> bytes:
    """An independent client, after the RFC's formulas."""
    name = HASHES[mechanism]
    fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salted = hashlib.pbkdf2_hmac(
        name, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"])
    )
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = b"c=%s,r=%s" % (binding.encode(), fields[b"r"])
    message = b",".join((first_bare, server_first, without_proof))
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def test_the_example_of_rfc_7677():
    first = read_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = new_credential(SHA_256, "pencil", salt=salt, iterations=4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server = ScramExchange(SHA_256, first, credential, server_nonce=nonce)
    assert server.server_first() == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    expected = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.server_final(final) == expected


@pytest.mark.parametrize("mechanism", HASHES)
def test_the_right_password_logs_in_and_every_other_fails(mechanism):
    for password, is_right in (("pencil", True), ("pencim", False), ("pencil ", False)):
        server = exchange(mechanism=mechanism)
        final = client_final(
            server.server_first(), b"n=user,r=client", password, mechanism=mechanism
        )
        if is_right:
            assert server.server_final(final).startswith(b"v=")
        else:
            with pytest.raises(AuthenticationFailed, match="invalid credentials"):
                server.server_final(final)


def test_every_changed_bit_of_the_proof_fails():
    final = client_final(exchange().server_first(), b"n=user,r=client")
    head, _, proof = final.rpartition(b",p=")
    right = base64.b64decode(proof)
    for bit in range(len(right) * 8):
        wrong = bytearray(right)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AuthenticationFailed, match="invalid credentials"):
            exchange().server_final(head + b",p=" + base64.b64encode(bytes(wrong)))
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        exchange().server_final(head + b",p=" + base64.b64encode(right[:-1]))


def test_a_replayed_final_message_fails():
    final = client_final(exchange().server_first(), b"n=user,r=client")
    assert exchange().server_final(final)
    with pytest.raises(AuthenticationFailed, match="nonce"):
        exchange(server="other").server_final(final)


@pytest.mark.parametrize("nonce", [b"client", b"server", b"clientservex", b"clientserver1"])
def test_an_altered_nonce_fails(nonce):
    final = client_final(exchange().server_first(), b"n=user,r=client")
    with pytest.raises(AuthenticationFailed, match="nonce"):
        exchange().server_final(final.replace(b"r=clientserver", b"r=" + nonce))


def test_the_channel_binding_is_the_header_of_the_first_message():
    for first, binding, is_right in (
        (b"n,,", b"n,,", True),
        (b"n,a=user,", b"n,a=user,", True),
        (b"n,,", b"y,,", False),
        (b"n,a=user,", b"n,,", False),
    ):
        server = exchange(first=first + b"n=user,r=client")
        text = base64.b64encode(binding).decode()
        final = client_final(server.server_first(), b"n=user,r=client", binding=text)
        if is_right:
            assert server.server_final(final)
        else:
            with pytest.raises(AuthenticationFailed, match="channel binding"):
                server.server_final(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=user",
        b"n,,n=,r=a",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"y,,n=user,r=a",
        b"p=tls-unique,,n=user,r=a",
        b"n,,m=x,n=user,r=a",
        b"n,,n=us=er,r=a",
        b"n,,n=user=2,r=a",
        b"n,,n=user=,r=a",
        b"n,,n=user=2c,r=a",
        b"n,a==,n=user,r=a",
        b"n,,n=us\0er,r=a",
        b"n,,r=a,n=user",
        b"n,,n=user,r=a,novalue",
        b"\xff\xfe",
        b"n,a=other,n=user,r=a",
        b"n,a=use,n=user,r=a",
    ],
)
def test_a_first_message_that_is_wrong_fails(message):
    with pytest.raises(AuthenticationFailed):
        read_client_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        b"c=biws,r=clientserver",
        b"c=biws,r=clientserver,p=",
        b"c=b,r=a,p=!",
        b"\xff",
    ],
)
def test_a_final_message_that_is_wrong_fails(message):
    with pytest.raises(AuthenticationFailed):
        exchange().server_final(message)


def test_a_message_of_the_largest_size_is_read_and_a_larger_one_is_not():
    start, end = b"n,,n=", b",r=x"
    name = b"a" * (MESSAGE_BYTES_MAX - len(start) - len(end))
    assert read_client_first(start + name + end).user == name.decode()
    with pytest.raises(AuthenticationFailed, match="not the first message"):
        read_client_first(start + name + b"a" + end)
    server = exchange()
    final = client_final(server.server_first(), b"n=user,r=client")
    with pytest.raises(AuthenticationFailed, match="not the last message"):
        server.server_final(final.replace(b",p=", b",x=" + b"a" * MESSAGE_BYTES_MAX + b",p="))


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_else(message):
    for read in (read_client_first, exchange_once().server_final):
        with contextlib.suppress(AuthenticationFailed):
            read(message)


def exchange_once() -> ScramExchange:
    first = read_client_first(b"n,,n=user,r=client")
    credential = credential_of(SHA_256, b"salted", salt=b"salt", iterations=4096)
    return ScramExchange(SHA_256, first, credential, server_nonce="server")


def test_names_are_unescaped_and_extensions_read():
    first = read_client_first(b"n,a=a=2Cb=3D2C,n=a=2Cb=3D2C,r=n,tokenauth=true")
    assert first.user == "a,b=2C"
    assert first.extensions == {"tokenauth": "true"}


def test_a_credential_is_stored_in_kafkas_form():
    credential = new_credential(SHA_256, "pencil", salt=b"salt", iterations=4096)
    text = encode_credential(credential)
    assert text.startswith("salt=c2FsdA==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert decode_credential(text) == credential
    for wrong in ("", text[:-1] + "x", text.replace("salt=", "salt=!"), text + ","):
        with pytest.raises(ValueError) as caught:
            decode_credential(wrong)
        assert "c2FsdA" not in str(caught.value)


def test_a_password_is_recognised_by_its_credential():
    credential = new_credential(SHA_256, "pencil", salt=b"salt", iterations=4096)
    assert is_password(SHA_256, credential, "pencil")
    assert not is_password(SHA_256, credential, "pencils")
    salted = salted_password(SHA_256, "pencil", b"salt", 4096)
    assert credential == credential_of(SHA_256, salted, salt=b"salt", iterations=4096)


def test_an_unknown_user_always_has_the_same_salt_and_no_password():
    made = [no_credential(SHA_256, "x", secret=b"s", iterations=4096) for _ in range(2)]
    assert made[0] == made[1]
    other = no_credential(SHA_256, "y", secret=b"s", iterations=4096)
    assert other.salt != made[0].salt
    assert len(made[0].salt) == 24
    assert len(made[0].stored_key) == 32
    assert len(no_credential("SCRAM-SHA-512", "x", secret=b"s", iterations=1).stored_key) == 64
    assert no_credential(SHA_256, "x", secret=b"t", iterations=4096).salt != made[0].salt


def test_secrets_are_not_in_the_text_of_a_credential():
    credential = new_credential(SHA_256, "pencil", salt=b"salt", iterations=4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"


def test_the_nonce_of_old_librdkafka_is_accepted():
    server = exchange()
    final = scram_final(
        b"n=user,r=client", server.server_first(), "pencil", SHA_256, nonce=b"clientclientserver"
    )
    assert server.server_final(final).startswith(b"v=")
