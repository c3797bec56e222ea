"""`millstream cluster adopt`: moves a standalone node's topics, options and ids to ZooKeeper."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo, print_json
from millstream.clock import SystemClock
from millstream.cluster.move_to_zookeeper import Move, move, read_move, target_problem
from millstream.cluster.stores.embedded import FILE_NAME, open_embedded_store
from millstream.cluster.stores.ensemble import Ensemble, ensemble_of
from millstream.cluster.stores.store import CoordinationFailed
from millstream.config import BrokerConfig, load_config
from millstream.config.load import refuse_secrets
from millstream.storage.files import OsFileSystem
from millstream.storage.meta import stored_node_id
from millstream.storage.store import LogStore

# The old store, kept for a way back.
_MOVED_SUFFIX: Final = ".moved"


@click.command()
@click.option(
    "--data-dir", type=click.Path(path_type=Path), required=True, help="The node's data directory."
)
@click.option(
    "--zookeeper", metavar="HOST:PORT/PATH", required=True, help="An empty path in ZooKeeper."
)
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The node's config file."
)
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set one option.")
@click.option("--apply", "is_applied", is_flag=True, help="Make the change; default: only show it.")
@json_option
def adopt(
    data_dir: Path,
    zookeeper: str,
    config_file: Path | None,
    sets: tuple[str, ...],
    is_applied: bool,
    as_json: bool,
) -> None:
    """Turn a standalone node's directory into the first node of a cluster.

    The node must be stopped. Without --apply nothing is changed. Afterwards, start the node
    with zookeeper.connect; others may then join it.
    """
    refuse_secrets(sets)
    config = load_config(file=config_file, sets=sets, flags={"zookeeper.connect": zookeeper})
    ensemble = ensemble_of(config)
    assert ensemble is not None
    if not (data_dir / FILE_NAME).exists():
        raise CommandFailed(f"{data_dir} is not the directory of a standalone node")
    file_system = OsFileSystem()
    store = LogStore.claim(
        data_dir,
        file_system=file_system,
        cluster_id=None,
        broker_id=stored_node_id(file_system, str(data_dir)) or config.int("node.id"),
        clock_now_ms=SystemClock().now_ms,
        report=lambda line: None,
    )
    try:
        what = asyncio.run(_adopt(data_dir, ensemble, config, is_applied=is_applied))
    except CoordinationFailed as error:
        raise CommandFailed(str(error)) from error
    finally:
        store.close(clean=False)
    where = f"{ensemble.hosts}{ensemble.root}"
    if as_json:
        print_json({"zookeeper": where, "moved": is_applied, "lines": list(what.lines())})
        return
    for line in what.lines():
        echo(line)
    echo(
        f"Moved. Start the node with --set zookeeper.connect={where}"
        if is_applied
        else "Nothing was changed. Use --apply to move this to ZooKeeper."
    )


async def _adopt(
    data_dir: Path, ensemble: Ensemble, config: BrokerConfig, *, is_applied: bool
) -> Move:
    """What is moved, or would be."""
    # Imports kazoo, which may not be installed.
    from millstream.cluster.stores.zookeeper import open_zookeeper

    what = await _read(data_dir)
    if not is_applied and not await _is_made(ensemble):
        return what
    target = await open_zookeeper(ensemble)
    try:
        problem = await target_problem(target, what.image.cluster_id)
        if problem is not None:
            raise CommandFailed(f"cannot move to {ensemble.hosts}{ensemble.root}: {problem}")
        if not is_applied:
            return what
        await move(what, target, min_isr=config.int("min.insync.replicas"))
    finally:
        await target.close()
    _put_aside(data_dir)
    return what


async def _is_made(ensemble: Ensemble) -> bool:
    """Does the path exist? Opening a session in it would create it."""
    from millstream.cluster.stores.zookeeper import open_zookeeper

    top = await open_zookeeper(replace(ensemble, root=""))
    try:
        return await top.exists(ensemble.root or "/")
    finally:
        await top.close()


def _put_aside(data_dir: Path) -> None:
    for path in sorted(data_dir.glob(f"{FILE_NAME}*")):
        if not path.name.endswith(_MOVED_SUFFIX):
            os.rename(path, f"{path}{_MOVED_SUFFIX}")


async def _read(data_dir: Path) -> Move:
    store = await open_embedded_store(data_dir)
    try:
        return await read_move(store)
    finally:
        await store.close()
