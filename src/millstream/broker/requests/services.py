"""The parts of a node that handlers can take, by the names of their parameters.

A handler declares in its signature what it uses:

    handle(node, topics, request, body)

and `routes` passes `node` and `topics` from here, bound once, when the handler is first used.
A handler that uses many parts on the hot path takes all of them as `parts`, under a protocol
of those it uses.
"""

from dataclasses import field
from typing import TYPE_CHECKING

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.client_telemetry import ClientTelemetry
from millstream.broker.requests.fetch_sessions import FetchSessions
from millstream.broker.requests.heavy_checks import HeavyChecks
from millstream.broker.requests.kept_partitions import KeptPartitions
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.timed_reading import TimedReads
from millstream.broker.requests.turns import Turns
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.logins import Logins
from millstream.broker.security.quota_use import ClientQuotas
from millstream.broker.security.tokens import Tokens
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from millstream.broker.coordination.coordinators import GroupCoordinators
    from millstream.broker.coordination.sharing import Sharing
    from millstream.broker.coordination.transactions import TransactionCoordinator


@dataclass(frozen=True, slots=True)
class Services:
    node: NodeState
    topics: Topics
    # Creates a coordinator on first use; `groups` and `transactions` create it at once.
    coordination: Coordinators
    producer_ids: ProducerIds
    admissions: Admissions
    fetch_sessions: FetchSessions
    permissions: Permissions
    quotas: ClientQuotas
    cleaner: Cleaner
    logins: Logins
    turns: Turns = field(default_factory=Turns)
    kept: KeptPartitions = field(default_factory=KeptPartitions)
    timed_reads: TimedReads = field(default_factory=TimedReads)
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    # Requests answered, by API key.
    counts: dict[int, int] = field(default_factory=dict)
    heavy_checks: HeavyChecks = field(default_factory=HeavyChecks)

    @property
    def groups(self) -> "GroupCoordinators":
        return self.coordination.groups

    @property
    def transactions(self) -> "TransactionCoordinator":
        return self.coordination.transactions

    @property
    def sharing(self) -> "Sharing":
        return self.coordination.sharing

    @property
    def authentication(self) -> Authentication:
        return self.logins.authentication

    @property
    def tokens(self) -> Tokens:
        return self.logins.tokens

    @property
    def parts(self) -> "Services":
        return self
