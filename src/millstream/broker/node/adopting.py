"""Opens a data directory that Apache Kafka wrote for the first time, with the user's consent.

The plan is shown before anything is changed. A marker file records that the adoption has
started and is not yet in the coordination store, so that a crash in between repeats it.
"""

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cluster import znodes
from millstream.cluster.stores.embedded import FILE_NAME
from millstream.cluster.stores.store import CoordinationStore
from millstream.config import BrokerConfig
from millstream.errors import StartError

if TYPE_CHECKING:
    from millstream.cluster.adoption import AdoptionPlan

log = logging.getLogger(__name__)

MARKER_FILE: Final = "millstream-adopting"


def plan_if_needed(
    directory: Path, config: BrokerConfig, *, is_allowed: bool
) -> "AdoptionPlan | None":
    """What to adopt, or None. Raises StartError if the user has to agree first."""
    has_begun = (directory / MARKER_FILE).exists()
    if not has_begun and (_is_empty(directory) or (directory / FILE_NAME).exists()):
        # New, or already ours, as at nearly every start: the rest is not even imported.
        return None
    from millstream.cluster.adoption import needs_adoption, plan_adoption

    if not has_begun and not needs_adoption(directory):
        return None
    plan = plan_adoption(directory, config)
    if plan.problems:
        raise StartError(f"{directory} cannot be adopted: {'; '.join(plan.problems)}")
    if not is_allowed and not has_begun:
        lines = "\n  ".join(plan.lines)
        raise StartError(f"{lines}\nNothing was changed. Start with --adopt to adopt it.")
    for line in plan.lines:
        log.info("adopting: %s", line)
    return plan


def _is_empty(directory: Path) -> bool:
    return not directory.is_dir() or next(directory.iterdir(), None) is None


def mark_begun(directory: Path) -> None:
    (directory / MARKER_FILE).touch()


async def take_over(plan: "AdoptionPlan", store: CoordinationStore, *, broker_id: int) -> None:
    from millstream.cluster.adoption import adopt

    if not await store.exists(znodes.CLUSTER_ID):
        await adopt(plan, store, broker_id=broker_id, new_topic_ids=_new_ids())
    (plan.directory / MARKER_FILE).unlink(missing_ok=True)


def _new_ids() -> Iterator[uuid.UUID]:
    while True:
        yield uuid.uuid4()
