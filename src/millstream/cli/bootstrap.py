"""Talks to a broker for a command: options, connection, and errors in plain words.

confluent-kafka is imported inside the functions, because it costs more time than all of
`millstream --help` may take.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from millstream import __version__
from millstream.cli.client_options import (
    BOOTSTRAP,
    client_option,
    client_options,
    librdkafka_names,
)
from millstream.cli.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, TopicDescription

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REQUEST_SECONDS_MAX = 20.0
# Java's: the same key goes to the same partition, whichever client sends it.
PARTITIONER = "murmur2_random"


def bootstrap_option(command: F) -> F:
    """Add `-b/--bootstrap`, `-X` and `--config` to a command."""
    return _bootstrap_option(client_option("--config", "--command-config")(command))


def bootstrap_option_beside_config(command: F) -> F:
    """The same for a command whose own `--config` is something else."""
    return _bootstrap_option(client_option("--command-config")(command))


def _bootstrap_option(command: F) -> F:
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        envvar=["MILLSTREAM_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"],
        default=lambda: client_options().get(BOOTSTRAP, DEFAULT_BOOTSTRAP),
        help="The broker to connect to first; also from KAFKA_BOOTSTRAP_SERVERS or the client's "
        f"options. Default: {DEFAULT_BOOTSTRAP}.",
    )(command)


def json_option(command: F) -> F:
    """Add `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def client_settings(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings for the library's clients. They retry silently: the caller has made sure that a
    broker answers, by `Cluster`, `connect_admin` or `check_reachable`."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": f"millstream/{__version__}",
        # librdkafka writes to stderr on its own; we report failures instead.
        "log_level": 0,
        # Otherwise it waits 50 ms before it connects to the node that it needs.
        "enable.sparse.connections": False,
        **librdkafka_names(client_options()),
    }


def check_reachable(bootstrap: str) -> tuple[str, int]:
    """The first address where a broker answers. Fails with the reason, where a client library
    would retry silently."""
    from millstream.cli.first_contact import connect_first

    with connect_first(bootstrap) as connection:
        return connection.address.host, connection.address.port


def connect_admin(bootstrap: str) -> "AdminClient":
    check_reachable(bootstrap)
    from confluent_kafka.admin import AdminClient

    return AdminClient(client_settings(bootstrap))


def describe_topic(admin: "AdminClient", topic: str) -> "TopicDescription":
    """The topic as the cluster sees it; never creates it, unlike a plain Metadata request."""
    from confluent_kafka import TopicCollection

    if not topic:
        raise CommandFailed("the name of the topic is empty", exit_code=ExitCode.USAGE)
    answers: Mapping[str, Future[TopicDescription]] = admin.describe_topics(
        TopicCollection([topic]), request_timeout=REQUEST_SECONDS_MAX
    )
    return wait_for(answers[topic], f"topic {topic}")


def wait_for(future: "Future[T]", subject: str) -> T:
    """The result of an admin call, or a failure in plain words about `subject`."""
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_SECONDS_MAX + 5)
    except TimeoutError:
        raise CommandFailed(
            f"{subject}: no answer in {REQUEST_SECONDS_MAX:.0f} s", exit_code=ExitCode.TIMEOUT
        ) from None
    except KafkaException as failed:
        raise explain(failed.args[0], subject) from None


def explain(error: "KafkaError", subject: str) -> CommandFailed:
    """One line for a broker's or the client library's error."""
    from confluent_kafka import KafkaError

    code = error.code()
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART or code == KafkaError._UNKNOWN_TOPIC:
        return CommandFailed(
            f"{subject} does not exist. `millstream topic list` shows the existing ones; "
            "`millstream topic create NAME` creates one"
        )
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return CommandFailed(f"{subject} already exists")
    if code == KafkaError.REQUEST_TIMED_OUT:
        return CommandFailed(f"{subject}: {_why_timed_out(error)}", exit_code=ExitCode.TIMEOUT)
    if code in (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT):
        return CommandFailed(
            f"{subject}: no answer in time. The first address answers; if others do not, "
            "advertised.listeners may be wrong for this machine (`millstream doctor -b` checks "
            "it), or too few replicas may be in sync (`millstream topic describe` shows them)",
            exit_code=ExitCode.TIMEOUT,
        )
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return CommandFailed(
            f"{subject}: connection lost ({error.str()})", exit_code=ExitCode.UNREACHABLE
        )
    return CommandFailed(f"{subject}: {error.str()} ({error.name()})")


def _why_timed_out(error: "KafkaError") -> str:
    """A node's answer, so it can be reached: what it waited for has not happened."""
    from confluent_kafka import KafkaError

    # Not every response has a text of the node's; this is the client library's own.
    if error.str() != KafkaError(error.code()).str():
        return f"{error.str()} ({error.name()})"
    return (
        f"the node could not complete it in time ({error.name()}). Perhaps ZooKeeper does not"
        " answer it (its log says so), or too few replicas are in sync (`millstream topic describe`"
        " shows them)"
    )
