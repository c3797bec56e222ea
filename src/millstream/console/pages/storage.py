"""What is on the disk of the node of this process."""

from dataclasses import dataclass

from millstream.console.console import Console
from millstream.console.page import Page, Values
from millstream.console.pages.topics import TopicHead, topic_head


@dataclass(frozen=True, slots=True)
class Storage:
    topic: TopicHead


async def storage(console: Console, values: Values) -> Storage:
    return Storage(await topic_head(console, values.text("topic")))


PAGES: tuple[Page, ...] = (
    Page("/topics/{topic}/storage", "storage.html", storage, "Segments of a partition"),
)
