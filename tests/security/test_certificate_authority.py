from datetime import UTC, datetime, timedelta

from millstream.security.certificate_authority import issue, new_authority, read_certificates

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_certificate_of_a_server_names_its_hosts() -> None:
    authority = new_authority("CA", now=NOW, days=100)
    made = issue(authority, "node-1", hosts=["localhost", "::1", "localhost"], now=NOW, days=10)
    (facts,) = read_certificates(made.key + made.certificate)
    assert (facts.subject, facts.issuer, facts.is_authority) == ("CN=node-1", "CN=CA", False)
    assert facts.hosts == ("localhost", "::1")
    assert facts.not_after == NOW + timedelta(days=10)


def test_no_certificate_outlives_its_authority() -> None:
    authority = new_authority("CA", now=NOW, days=100)
    later = NOW + timedelta(days=95)
    (facts,) = read_certificates(issue(authority, "client", now=later, days=365).certificate)
    assert facts.not_after == NOW + timedelta(days=100)


def test_an_authority_says_that_it_is_one_and_each_serial_is_new() -> None:
    authority = new_authority("CA", now=NOW, days=100)
    (facts,) = read_certificates(authority.certificate)
    assert facts.is_authority
    made = [issue(authority, "client", now=NOW, days=1).certificate for _ in range(3)]
    assert len({read_certificates(each)[0].serial for each in made}) == 3
