"""What security costs: TLS, logins and ACLs.

Both brokers have a listener with TLS and one with TLS and SCRAM, and the same certificate.
Librdkafka encrypts on the same two cores, so the broker's CPU says more than the rate.
"""

import base64
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from timeit import timeit
from typing import TypeVar

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench import clients
from bench.bench import Bench, Compared
from bench.brokers import Broker, Kafka, Millstream, free_port, running
from bench.rows import Row, at_least, at_most
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.permissions import Permissions
from millstream.broker.security.audit import AuditLog
from millstream.broker.security.authorizer import AclAuthorizer
from millstream.client.blocking import Address, Connection
from millstream.client.security import Security, read_security
from millstream.cluster.acls import StoredAcls
from millstream.model import Principal
from millstream.replication.admission import Generation
from millstream.security.acl import Entry, Operation, Permission, ResourcePattern, ResourceType
from millstream.security.authorization import Rules
from millstream.security.operations import find_rule
from millstream.wire.apis.metadata import MetadataRequest
from tests.replication.test_partition import open_partition
from tests.replication.writing import Asker
from tests.support.certificates import Certificates

PART = "security"
_USER = "bench"
_ACLS_OF_OTHERS = 1_000
_CHECK_MICROSECONDS_MAX = 0.3
T = TypeVar("T")


class SecuredMillstream(Millstream):
    def __init__(self, folder: Path, certificates: Certificates) -> None:
        super().__init__(folder)
        self.tls_port, self.login_port = free_port(), free_port()
        self._certificates = certificates

    def command(self) -> list[str]:
        settings = secured(self, self._certificates)
        options = [part for item in settings.items() for part in ("--set", "=".join(item))]
        start = (sys.executable, "-m", "millstream", "broker", "--data-dir", "data", "--dev")
        return [*start, *options]


class SecuredKafka(Kafka):
    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.tls_port, self.login_port = free_port(), free_port()
        self._certificates = certificates
        super().__init__(folder)

    def settings(self) -> dict[str, str]:
        usual, ours = super().settings(), secured(self, self._certificates)
        controller = usual["listeners"].partition(",")[2]
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **usual,
            **ours,
            "listeners": f"{ours['listeners']},{controller}",
            "advertised.listeners": ours["listeners"],
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": module,
        }


Secured = SecuredMillstream | SecuredKafka


def secured(one: Secured, certificates: Certificates) -> dict[str, str]:
    """A listener for the bench itself, one with TLS, and one with TLS and logins."""
    return {
        "listeners": f"PLAINTEXT://{one.bootstrap},SSL://127.0.0.1:{one.tls_port},"
        f"SASL_SSL://127.0.0.1:{one.login_port}",
        "ssl.keystore.location": str(certificates.server),
        "ssl.keystore.type": "PEM",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }


def run(bench: Bench) -> list[Row]:
    certificates = Certificates(bench.path("certificates"))
    password = base64.urlsafe_b64encode(os.urandom(12)).decode()
    ours = SecuredMillstream(bench.path("millstream-secured"), certificates)
    kafka = SecuredKafka(bench.path("kafka-secured"), certificates)
    pair: list[Secured] = [kafka, ours]
    with running(kafka, ours):
        for one in pair:
            create_user(one.bootstrap, password)
        security = login(certificates, password)
        return [
            *throughput(bench, pair, certificates),
            *rates(bench, pair, "new TLS connections", lambda one: connect(one, certificates)),
            *rates(bench, pair, "SCRAM-SHA-512 logins", lambda one: log_in(one, security)),
            *acl_checks(bench),
        ]


def create_user(bootstrap: str, password: str) -> None:
    admin = clients.admin_client(bootstrap)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(_USER, info, password.encode())
    for done in admin.alter_user_scram_credentials([wanted]).values():
        done.result(60)


def login(certificates: Certificates, password: str) -> Security:
    return read_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{_USER}" password="{password}";',
            "ssl.truststore.location": str(certificates.ca),
            "ssl.truststore.type": "PEM",
        }
    )


# -- what is measured ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    mb_per_second: float
    cpu_seconds_per_gb: float


def throughput(bench: Bench, pair: list[Secured], certificates: Certificates) -> list[Row]:
    count = 200_000 if bench.is_quick else 600_000
    lines = bench.path("lines")
    lines.write_text(("x" * 1023 + "\n") * count)
    options = ["-X", "security.protocol=ssl", "-X", f"ssl.ca.location={certificates.ca}"]

    def write(one: Secured) -> Moved:
        topic = f"tls-{time.monotonic_ns()}"
        clients.create_topic(one.bootstrap, topic, partitions=1, config={})
        found = moved(
            one,
            count,
            lambda: clients.kcat_produce(
                f"127.0.0.1:{one.tls_port}", topic, lines, count=count, acks="1", options=options
            ),
        )
        clients.delete_topic(one.bootstrap, topic)
        return found

    for one in pair:
        clients.create_topic(one.bootstrap, "read", partitions=1, config={})
        clients.kcat_produce(one.bootstrap, "read", lines, count=count, acks="1")

    def read(one: Secured) -> Moved:
        return moved(
            one,
            count,
            lambda: clients.kcat_consume(
                f"127.0.0.1:{one.tls_port}", "read", count=count, options=options
            ),
        )

    rows = []
    for name, measure in (("produce", write), ("consume", read)):
        found = Compared(*rounds(bench, pair, f"{name} over TLS", measure))
        speeds = found.values(lambda each: each.mb_per_second)
        cpu = found.values(lambda each: each.cpu_seconds_per_gb)
        rows += [
            Row(PART, f"kcat {name} over TLS, 1 KB", "MB/s", *speeds, at_least(1.2)),
            Row(PART, f"kcat {name} over TLS, broker CPU", "s per GB", *cpu, at_most(1)),
        ]
    lines.unlink()
    return rows


def moved(broker: Broker, count: int, work: Callable[[], float]) -> Moved:
    before = broker.cpu_seconds()
    rate = work()
    gigabytes = count * 1024 / 1e9
    return Moved(rate * 1024 / 1e6, (broker.cpu_seconds() - before) / gigabytes)


def connect(one: Secured, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    raw = socket.create_connection(("127.0.0.1", one.tls_port), timeout=30)
    with context.wrap_socket(raw, server_hostname="127.0.0.1") as sock:
        sock.getpeercert()


def log_in(one: Secured, security: Security) -> None:
    Connection(Address("127.0.0.1", one.login_port), client_id="bench", security=security).close()


def rates(
    bench: Bench, pair: list[Secured], name: str, work: Callable[[Secured], None]
) -> list[Row]:
    def measure(one: Secured) -> float:
        done, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < bench.round_seconds:
            work(one)
            done += 1
        return done / passed

    return [Row(PART, f"{name}, one after the other", "/s", *rounds(bench, pair, name, measure))]


# -- the ACL check, in this process ------------------------------------------------------------


def acl_checks(bench: Bench) -> list[Row]:
    """What a request of a user with one ACL pays, among many ACLs of others. A produce, a fetch
    and a commit ask for an admission; what it costs without an authorizer is not the check's."""
    asker = Asker(Principal(f"User:{_USER}"))
    partition = open_partition()
    free, checked = admissions(None), admissions(authorizer())
    name = partition.topic_partition.topic
    permissions = checked[1]
    metadata = find_rule(MetadataRequest.api.key, 12, ResourceType.TOPIC)
    admitting, deciding = [], []
    for number in range(bench.rounds):
        bench.say(f"ACL checks: round {number + 1} of {bench.rounds}")
        without = microseconds(lambda: free[0].of(asker, partition))
        admitting.append(microseconds(lambda: checked[0].of(asker, partition)) - without)
        deciding.append(microseconds(lambda: permissions.decide(asker, metadata, name)))
    limit = [_CHECK_MICROSECONDS_MAX] * len(admitting)
    others = f"{_ACLS_OF_OTHERS:,} ACLs of others"
    return [
        Row(
            PART,
            f"ACL check of a produce, fetch or commit, {others}",
            "us",
            admitting,
            limit,
            at_most(1),
            against="limit",
        ),
        Row(PART, f"ACL decision on one topic of another request, {others}", "us", deciding),
    ]


def admissions(authorizer: AclAuthorizer | None) -> tuple[Admissions, Permissions]:
    generation = Generation()
    permissions = Permissions(generation, AuditLog(time.monotonic))
    permissions.use(authorizer)
    return Admissions(generation, permissions), permissions


def authorizer() -> AclAuthorizer:
    acls = StoredAcls()
    own = {ResourcePattern(ResourceType.TOPIC, "t"): {_allowed(_USER, Operation.ALL)}}
    others = {
        ResourcePattern(ResourceType.TOPIC, f"other-{number}"): {
            _allowed(f"other-{number}", Operation.READ)
        }
        for number in range(_ACLS_OF_OTHERS)
    }
    acls.apply({pattern: frozenset(them) for pattern, them in {**own, **others}.items()})
    return AclAuthorizer(acls, Rules())


def _allowed(user: str, operation: Operation) -> Entry:
    return Entry(f"User:{user}", "*", operation, Permission.ALLOW)


def microseconds(work: Callable[[], object]) -> float:
    count = 200_000
    return 1e6 * timeit(work, number=count) / count


def rounds(
    bench: Bench, pair: list[Secured], name: str, measure: Callable[[Secured], T]
) -> tuple[list[T], list[T]]:
    """Ours, and Kafka's."""
    found: dict[str, list[T]] = {one.name: [] for one in pair}
    for number in range(bench.rounds + 1):
        for one in pair:
            bench.say(f"{name}: {one.name}, round {number} of {bench.rounds}")
            value = measure(one)
            # The first makes the JVM compile.
            if number:
                found[one.name].append(value)
    return found["Millstream"], found["Kafka"]
