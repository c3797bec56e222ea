"""All pages and actions of the console, in one table each."""

from typing import Final

from millstream.console.page import Action, Page
from millstream.console.pages import (
    clients,
    groups,
    messages,
    nodes,
    overview,
    pipeline,
    queues,
    security,
    storage,
    topics,
    transactions,
)

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *topics.PAGES,
    *messages.PAGES,
    *storage.PAGES,
    # Before the page of a group, whose name may contain anything.
    *queues.PAGES,
    *groups.PAGES,
    *nodes.PAGES,
    *clients.PAGES,
    *transactions.PAGES,
    *security.PAGES,
    *pipeline.PAGES,
)
ACTIONS: Final[tuple[Action, ...]] = (*topics.ACTIONS, *messages.ACTIONS, *groups.ACTIONS)
