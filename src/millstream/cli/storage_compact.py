"""`millstream storage compact`: on a running node, or offline on its directory."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option_beside_config, json_option
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, echo, print_json, print_table
from millstream.client.blocking import Address
from millstream.errors import KafkaCode
from millstream.wire.apis.compact_topic import CompactTopicRequest, CompactTopicResponse

_POLL_SECONDS: Final = 0.2
_WORKING: Final = (1, 2)
_HEADINGS: Final = (
    "PARTITION",
    "DIRTY-RATIO",
    "BYTES-BEFORE",
    "BYTES-AFTER",
    "RECORDS-BEFORE",
    "RECORDS-AFTER",
    "KEYS",
    "MS",
    "NODE",
)
Row = dict[str, JsonValue]


@click.command()
@click.argument("target", metavar="TOPIC|DIR")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="With a directory: the node's config file.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="With a directory: one option of the node.",
)
@json_option
@bootstrap_option_beside_config
def compact(
    target: str, config_file: Path | None, sets: tuple[str, ...], as_json: bool, bootstrap: str
) -> None:
    """Compact a topic now, and wait until it is done.

    Every node that has a replica of TOPIC compacts it. Instead of a topic you can name a
    directory (a data directory, or one partition of it) that no running node uses; then repeat
    the node's --config and --set options.
    """
    if Path(target).is_dir():
        rows = _compact_offline(Path(target), config_file, sets)
    elif config_file is not None or sets:
        raise click.UsageError("--config and --set are for a directory; a node has its own options")
    else:
        rows = _ask(target, bootstrap)
    if as_json:
        print_json(rows)
        return
    print_table(_HEADINGS, [_cells(row) for row in rows])


def _cells(row: Row) -> Sequence[object]:
    names = [heading.lower().replace("-", "_") for heading in _HEADINGS]
    cells = [row[name] for name in names]
    cells[1] = f"{row['dirty_ratio']:.2f}"
    cells[-1] = "-" if row["node"] is None else row["node"]
    return cells


def _ask(topic: str, bootstrap: str) -> list[Row]:
    """Start it on every node that has a replica, and report the progress until it is done."""

    def checked(answer: CompactTopicResponse) -> CompactTopicResponse:
        if answer.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(f"topic {topic} does not exist")
        if answer.error_code:
            code = KafkaCode(answer.error_code).name
            raise CommandFailed(f"topic {topic}: {answer.error_message or code} ({code})")
        return answer

    with Cluster(bootstrap) as cluster:
        cluster.require(cluster.first, CompactTopicRequest)
        holders = _holders(cluster, topic)

        def ask_all(*, is_started: bool) -> dict[int, CompactTopicResponse]:
            request = CompactTopicRequest(topic=topic, is_started=is_started)
            return {
                node_id: checked(cluster.ask(address, request))
                for node_id, address in holders.items()
            }

        answers = ask_all(is_started=True)
        # Now, when the active segments are rolled and nothing is compacted yet.
        ratios = {
            (node_id, each.partition): each.dirty_ratio
            for node_id, answer in answers.items()
            for each in answer.partitions
        }
        while _show_progress(answers):
            time.sleep(_POLL_SECONDS)
            answers = ask_all(is_started=False)
        echo("", err=True)
    rows = []
    for node_id, answer in answers.items():
        for each in answer.partitions:
            if each.problem is not None:
                where = f"{topic}-{each.partition} on node {node_id}"
                raise CommandFailed(f"cannot compact {where}: {each.problem}")
            ratio = ratios.get((node_id, each.partition), 0.0)
            rows.append((each.partition, _row(f"{topic}-{each.partition}", ratio, each, node_id)))
    # Partitions in their order, and the nodes of each in the order of the requests.
    return [row for _, row in sorted(rows, key=lambda one: one[0])]


def _holders(cluster: Cluster, topic: str) -> dict[int, Address]:
    """The nodes with replicas of a topic, and their addresses."""
    nodes = {one.broker_id: Address(one.host, one.port) for one in cluster.live_nodes()}
    [found] = cluster.metadata(topic).topics
    if found.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandFailed(f"topic {topic} does not exist")
    check(found.error_code, f"topic {topic}")
    wanted = {node_id for one in found.partitions for node_id in one.replica_nodes}
    for node_id in sorted(wanted - nodes.keys()):
        echo(f"node {node_id} is down: its replicas are not compacted", err=True)
    return {node_id: nodes[node_id] for node_id in sorted(wanted & nodes.keys())}


def _show_progress(answers: Mapping[int, CompactTopicResponse]) -> bool:
    """Whether there is still something to wait for."""
    replicas = [each for answer in answers.values() for each in answer.partitions]
    moved = sum(each.moved_bytes for each in replicas)
    done = sum(each.state not in _WORKING for each in replicas)
    what = "partitions" if len(answers) == 1 else "replicas"
    text = f"\r{done} of {len(replicas)} {what}, {moved / 1e6:,.0f} MB moved"
    # Not `echo`, which would spell out the return to the start of the line.
    click.echo(text, nl=False, err=True)
    return done < len(replicas)


def _compact_offline(path: Path, config_file: Path | None, sets: Sequence[str]) -> list[Row]:
    from millstream.broker.upkeep.offline_compaction import compact_directory
    from millstream.clock import SystemClock
    from millstream.config import load_config
    from millstream.config.load import refuse_secrets
    from millstream.storage import layout
    from millstream.storage.compaction_round import CannotCompact

    refuse_secrets(sets)
    only = layout.parse_directory(path.resolve().name)
    data_dir = path if only is None else path.resolve().parent
    config = load_config(file=config_file, sets=sets)
    rows: list[Row] = []
    try:
        for outcome in compact_directory(
            data_dir,
            config,
            SystemClock(),
            only=only,
            report=lambda text: echo(text, err=True),
        ):
            rows.append(_row(str(outcome.partition), outcome.dirty_ratio, outcome))
            echo(f"compacted {outcome.partition}", err=True)
    except CannotCompact as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename or path}: {error.strerror}") from None
    return rows


def _row(partition: str, dirty_ratio: float, done: object, node_id: int | None = None) -> Row:
    """From a node's response or from our own work: both have the same names."""
    row: Row = {"partition": partition, "node": node_id, "dirty_ratio": dirty_ratio}
    for name in ("bytes_before", "bytes_after", "records_before", "records_after", "keys"):
        row[name] = getattr(done, name)
    row["ms"] = getattr(done, "elapsed_ms", 0)
    return row
