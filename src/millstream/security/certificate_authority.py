"""A small certificate authority: creates one, issues certificates from it, and reads them.

Keys are ECDSA on P-256: a handshake costs a tenth of that with RSA. Needs `cryptography`.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of other machines may be behind.
_EARLIER = timedelta(minutes=5)
_PRINTED_HOSTS = (x509.DNSName, x509.IPAddress)


@dataclass(frozen=True, slots=True)
class KeyAndCertificate:
    """PEM, without a password."""

    key: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    subject: str
    common_name: str
    issuer: str
    serial: int
    not_after: datetime
    hosts: tuple[str, ...]
    is_authority: bool


def new_authority(name: str, *, now: datetime, days: int) -> KeyAndCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _dated(now, days)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _packed(key, builder.sign(key, hashes.SHA256()))


def issue(
    authority: KeyAndCertificate,
    name: str,
    *,
    hosts: Sequence[str] = (),
    now: datetime,
    days: int,
) -> KeyAndCertificate:
    """With hosts, a certificate of a server, which is also good as that server's client
    certificate; without, of a client. It never outlives its authority."""
    authority_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the authority is not an elliptic curve key")
    parent = x509.load_pem_x509_certificate(authority.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    days_left = max((parent.not_valid_after_utc - now).days, 0)
    builder = (
        _dated(now, min(days, days_left))
        .subject_name(_named(name))
        .issuer_name(parent.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    if hosts:
        names = [_alternative(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _packed(key, builder.sign(authority_key, hashes.SHA256()))


def read_certificates(pem: bytes) -> list[CertificateFacts]:
    """The certificates in a PEM file, which may hold keys too. Raises ValueError."""
    return [_facts(certificate) for certificate in x509.load_pem_x509_certificates(pem)]


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    hosts: tuple[str, ...] = ()
    is_authority = False
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            hosts = tuple(
                str(name.value) for name in extension.value if isinstance(name, _PRINTED_HOSTS)
            )
        elif isinstance(extension.value, x509.BasicConstraints):
            is_authority = extension.value.ca
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        common_name=_common_name(certificate),
        issuer=certificate.issuer.rfc4514_string(),
        serial=certificate.serial_number,
        not_after=certificate.not_valid_after_utc,
        hosts=hosts,
        is_authority=is_authority,
    )


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _dated(now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _packed(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyAndCertificate:
    return KeyAndCertificate(
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
    )
