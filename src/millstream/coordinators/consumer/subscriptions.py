"""The topics that the members of a group read, counted by name as members come, change and go.

A step asks which topics the group reads after it, and every name that a client sends may be one
that does not exist. So equal subscriptions are kept once, with the number of their readers; a name
is counted once for each different subscription; and what topics they are is looked up once per
version of the topics. What a step costs follows from what it changes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from millstream.cluster.state import ClusterImage
from millstream.lazy_dataclass import dataclass

Names = tuple[str, ...]


@dataclass(slots=True)
class Subscription:
    """Names that a reader subscribes to together; a pattern reads what it matches."""

    names: Names
    readers: int = 0
    # Those that exist, as of a version of the topics.
    _topic_ids: frozenset[UUID] = frozenset()
    _topics_version: int = -1

    def topic_ids(self, image: ClusterImage, topics_version: int) -> frozenset[UUID]:
        if self._topics_version != topics_version:
            self._topic_ids = topic_ids(self.names, image)
            self._topics_version = topics_version
        return self._topic_ids


@dataclass(frozen=True, slots=True)
class Difference:
    """What a step changes: names that nobody reads any more, and those that nobody read before."""

    gone: frozenset[str] = frozenset()
    come: frozenset[str] = frozenset()


class Subscriptions:
    def __init__(self) -> None:
        self._known: dict[Names, Subscription] = {}
        # In how many different subscriptions each name is.
        self._counts: Counter[str] = Counter()
        # How many names the different subscriptions have together, and those of all readers.
        self.different_names = 0
        self.all_names = 0
        # Grows when a name comes or goes.
        self.version = 0
        # Of the topics that are read, by the versions of names and topics.
        self._hash = 0
        self._hashed_versions = (-1, -1)

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    @property
    def different(self) -> int:
        """How many different subscriptions there are."""
        return len(self._known)

    def names(self) -> set[str]:
        return set(self._counts)

    def is_known(self, names: Names) -> bool:
        return names in self._known

    def add(self, names: Names) -> Subscription:
        """Another reader."""
        found = self._known.get(names)
        if found is None:
            found = self._known[names] = Subscription(names)
            before = len(self._counts)
            self._counts.update(names)
            self.version += len(self._counts) != before
            self.different_names += len(names)
        found.readers += 1
        self.all_names += len(names)
        return found

    def remove(self, subscription: Subscription) -> None:
        """One reader less."""
        subscription.readers -= 1
        self.all_names -= len(subscription.names)
        if subscription.readers > 0:
            return
        del self._known[subscription.names]
        self.different_names -= len(subscription.names)
        before = len(self._counts)
        for name in subscription.names:
            self._counts[name] -= 1
            if self._counts[name] == 0:
                del self._counts[name]
        self.version += len(self._counts) != before

    # -- after a step whose records are not applied yet ---------------------------------

    def difference(self, less: Iterable[Names], more: Iterable[Names]) -> Difference:
        """These readers go, and those come."""
        readers = Counter(more)
        readers.subtract(less)
        counts: Counter[str] = Counter()
        for names, count in readers.items():
            known = self._known.get(names)
            if known is None and count > 0:
                counts.update(names)
            elif known is not None and known.readers + count == 0:
                counts.subtract(names)
        return Difference(
            gone=frozenset(
                name for name, n in counts.items() if n < 0 and self._counts[name] == -n
            ),
            come=frozenset(
                name for name, n in counts.items() if n > 0 and name not in self._counts
            ),
        )

    def existing(self, difference: Difference, image: ClusterImage) -> set[str]:
        """The topics that are read."""
        # The smaller of the two is looked up in the larger.
        found = self._counts.keys() & image.topics.keys()
        return (found - difference.gone) | (difference.come & image.topics.keys())

    def topics_hash(self, difference: Difference, image: ClusterImage, topics_version: int) -> int:
        # Asked of the keys, which go through the smaller of the two. A set goes through what it is
        # asked about: here, all topics of the cluster.
        topics = image.topics.keys()
        if not topics.isdisjoint(difference.gone) or not topics.isdisjoint(difference.come):
            return topics_hash(self.existing(difference, image), image)
        versions = (self.version, topics_version)
        if self._hashed_versions != versions:
            self._hash = topics_hash(self.existing(Difference(), image), image)
            self._hashed_versions = versions
        return self._hash


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[UUID]:
    topics = image.topics
    return frozenset(topics[name].topic_id for name in names if name in topics)


def topics_hash(names: Iterable[str], image: ClusterImage) -> int:
    """Changes when one of the topics is created, deleted, recreated or grows. Never 0."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is not None:
            digest.update(f"{name} {topic.topic_id} {len(topic.partitions)}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
