"""The versions of requests that older releases of Kafka knew.

A broker that is limited to one offers no more than that release did, and closes the connection of
a client that sends more, as that release would.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.broker.handlers.api_versions import features
from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass
from millstream.wire.apis.api_versions import ApiVersionsKey, ApiVersionsResponse
from millstream.wire.headers import RequestHeader

RELEASES: Final = ("2.8", "3.0", "3.3", "3.6", "3.9", "4.0", "4.1")
# The highest version of each API in those releases; a dash where it did not exist. APIs that are
# not here have been the same all the time.
_HIGHEST: Final = """
Produce                   0    9  9  9  9 11 12 13
Fetch                     1   12 12 13 15 17 17 18
ListOffsets               2    6  7  7  8  9 10 10
Metadata                  3   11 11 12 12 12 13 13
OffsetCommit              8    8  8  8  8  9  9  9
OffsetFetch               9    7  8  8  8  9  9  9
FindCoordinator           10   3  4  4  4  6  6  6
JoinGroup                 11   7  7  9  9  9  9  9
LeaveGroup                13   4  4  5  5  5  5  5
DescribeGroups            15   5  5  5  5  5  6  6
ListGroups                16   4  4  4  4  5  5  5
ApiVersions               18   3  3  3  3  4  4  4
InitProducerId            22   4  4  4  4  5  5  5
AddPartitionsToTxn        24   3  3  3  4  5  5  5
AddOffsetsToTxn           25   3  3  3  3  4  4  4
EndTxn                    26   3  3  3  3  4  5  5
WriteTxnMarkers           27   1  1  1  1  1  1  1
TxnOffsetCommit           28   3  3  3  3  4  5  5
DescribeAcls              29   2  2  3  3  3  3  3
CreateAcls                30   2  2  3  3  3  3  3
DeleteAcls                31   2  2  3  3  3  3  3
DescribeLogDirs           35   2  2  4  4  4  4  4
CreateDelegationToken     38   2  2  3  3  3  3  3
DescribeDelegationToken   41   2  2  3  3  3  3  3
AlterPartitionReassignments 45 0  0  0  0  0  0  1
DescribeQuorum            55   0  0  1  1  2  2  2
UpdateFeatures            57   0  0  1  1  1  2  2
DescribeCluster           60   0  0  0  0  1  2  2
UnregisterBroker          64   0  -  0  0  0  0  0
DescribeTransactions      65   -  0  0  0  0  0  0
ListTransactions          66   -  0  0  0  1  1  2
ConsumerGroupHeartbeat    68   -  -  -  -  0  1  1
ConsumerGroupDescribe     69   -  -  -  -  0  1  1
ListConfigResources       74   -  -  -  -  0  0  1
DescribeTopicPartitions   75   -  -  -  -  0  0  0
"""


@dataclass(frozen=True, slots=True)
class OlderKafka:
    has_features: bool
    # By API key; None where the release had no such API.
    highest: Mapping[int, int | None]

    def knows(self, header: RequestHeader) -> bool:
        known = self.highest.get(header.api_key, header.version)
        return known is not None and header.version <= known

    def versions(
        self, header: RequestHeader, ours: Iterable[ApiVersionsKey]
    ) -> ApiVersionsResponse:
        """The answer to ApiVersions. Up to 3.9 there were no features that clients look at."""
        code = KafkaCode.NONE if self.knows(header) else KafkaCode.UNSUPPORTED_VERSION
        listed = [limited for one in ours if (limited := self._limited(one)) is not None]
        supported, finalized = features() if self.has_features else ([], [])
        return ApiVersionsResponse(
            error_code=code,
            api_keys=listed,
            supported_features=supported,
            finalized_features=finalized,
        )

    def _limited(self, one: ApiVersionsKey) -> ApiVersionsKey | None:
        highest = self.highest.get(one.api_key, one.max_version)
        if highest is None or highest < one.min_version:
            return None
        return ApiVersionsKey(
            api_key=one.api_key,
            min_version=one.min_version,
            max_version=min(highest, one.max_version),
        )


def older_kafka(release: str) -> OlderKafka:
    """Raises ValueError for a release that is not in the table."""
    if release not in RELEASES:
        raise ValueError(f"releases are {', '.join(RELEASES)}, not {release!r}")
    column = RELEASES.index(release)
    highest: dict[int, int | None] = {}
    for line in _HIGHEST.strip().splitlines():
        _, key, *versions = line.split()
        highest[int(key)] = None if versions[column] == "-" else int(versions[column])
    return OlderKafka(column >= RELEASES.index("4.0"), highest)
