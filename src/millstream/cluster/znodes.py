"""Paths and contents of the coordination store, laid out as Kafka lays out ZooKeeper.

The arrows show which module may write what; every other component only reads. A member's
writes also check that its own epoch is current, the controller's that its controller epoch
is.

/cluster/id                               the cluster's id
                                            <- joining: the first node
/cluster/secret                           what nodes prove themselves with
                                            <- joining: the first node
/feature                                  the cluster's level
                                            <- controller
/controller                               ephemeral: the controller's node
                                            <- controller: the node that wins
/controller_epoch                         counts the controllers
                                            <- controller, with its first write
/latest_producer_id_block                 the last block given out
                                            <- metadata, at any node
/brokers/ids/<id>                         ephemeral: a live node's addresses
                                            <- membership of that node
/brokers/epochs/<id>                      its version counts a node's starts
                                            <- joining of that node
                                            <- controller, to fence it
/brokers/handled/<id>                     the start that was handled
                                            <- controller
/brokers/topics/<t>                       topic id, replicas per partition
                                            <- member_publisher, at any node
                                            <- elections and controller, for a reassignment
/brokers/topics/<t>/partitions/<p>/state  leader, leader epoch, ISR; once changed, replicas too
                                            <- controller
                                            <- elections, on request or to give up a replica
                                            <- member_publisher, when a topic comes or goes
                                            <- membership of the leader, for its ISR
/config/topics/<t>                        a topic's own options
                                            <- member_publisher, at any node
/config/brokers/<id> or <default>         options changed at run time
                                            <- member_publisher, at any node
/config/groups/=<g>                       a group's own options, <g> quoted
                                            <- member_publisher, at any node
/config/client-metrics/=<s>               a subscription to client metrics, <s> quoted
                                            <- member_publisher, at any node
/config/users/<u>                         a user's quotas and SCRAM credentials
                                            <- member_publisher, at any node
/config/clients/<c>                       a client id's quotas
                                            <- member_publisher, at any node
/config/users/<u>/clients/<c>             quotas of a client id of one user
                                            <- member_publisher, at any node
/config/ips/<ip>                          an address's quotas
                                            <- member_publisher, at any node
/kafka-acl/<Type>/<name>                  ACLs of a literal resource name, quoted
                                            <- member_publisher, at any node
/kafka-acl-extended/prefixed/<Type>/<n>   ACLs of a prefix
                                            <- member_publisher, at any node
/kafka-acl-changes                        the paths that the last change of ACLs wrote
                                            <- member_publisher, with each change
/delegation_token/tokens/<id>             a delegation token, without its HMAC
                                            <- member_publisher, at any node
/consumers/...                            groups, for old tools
                                            <- mirror, at the group's coordinator

Names of users, client ids and addresses are quoted as Kafka does; `<default>` stands for those
without options. A writer of one also writes /config/users, /config/clients or
/config/ips, so that one watch on each of the three is enough.

A standalone node writes all of them through `publisher`, into its own database. `adoption`
and `move_to_zookeeper` fill an empty store once; `incomplete_topics` removes what a creation
or a deletion left behind.
"""

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from millstream.cluster.client_entities import DEFAULT_NAME, ClientEntity
from millstream.cluster.level import FEATURE, LOWEST
from millstream.cluster.state import (
    NO_BROKER_EPOCH,
    BrokerState,
    Endpoint,
    Incarnation,
    LogEnd,
    NamedResource,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import Create, Delete, Node, Operation
from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.security.acl import (
    RESOURCE_TYPES,
    Entry,
    PatternType,
    Permission,
    ResourcePattern,
)
from millstream.security.acl import Operation as AclOperation
from millstream.security.delegation import DelegationToken

CLUSTER_ID: Final = "/cluster/id"
CLUSTER_SECRET: Final = "/cluster/secret"
LEVEL: Final = "/feature"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
PRODUCER_IDS: Final = "/latest_producer_id_block"
TOPICS: Final = "/brokers/topics"
BROKERS: Final = "/brokers/ids"
EPOCHS: Final = "/brokers/epochs"
HANDLED: Final = "/brokers/handled"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
NAMED_CONFIGS: Final = {kind: f"/config/{kind.value}" for kind in NamedResource}
USER_CONFIGS: Final = "/config/users"
CLIENT_CONFIGS: Final = "/config/clients"
IP_CONFIGS: Final = "/config/ips"
ENTITY_CONFIGS: Final = (USER_CONFIGS, CLIENT_CONFIGS, IP_CONFIGS)
LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
ACL_CHANGES: Final = "/kafka-acl-changes"
_ACL_FOLDERS: Final = {
    f"{root}/{resource_type.title}": (resource_type, pattern_type)
    for root, pattern_type in (
        (LITERAL_ACLS, PatternType.LITERAL),
        (PREFIXED_ACLS, PatternType.PREFIXED),
    )
    for resource_type in RESOURCE_TYPES
}
TOKENS: Final = "/delegation_token/tokens"
# In the order in which they can be created.
BASE_PATHS: Final = (
    "/cluster",
    "/brokers",
    BROKERS,
    EPOCHS,
    HANDLED,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    *NAMED_CONFIGS.values(),
    *ENTITY_CONFIGS,
    "/delegation_token",
    TOKENS,
    LITERAL_ACLS,
    "/kafka-acl-extended",
    PREFIXED_ACLS,
    *_ACL_FOLDERS,
    ACL_CHANGES,
)
DEFAULT_BROKER: Final = "<default>"
_DEFAULT_ENTITY: Final = "<default>"
_CLIENTS_OF_USER: Final = "clients"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def epoch_path(broker_id: int) -> str:
    return f"{EPOCHS}/{broker_id}"


def handled_path(broker_id: int) -> str:
    return f"{HANDLED}/{broker_id}"


def broker_config_path(broker_id: int | None) -> str:
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER if broker_id is None else broker_id}"


def named_config_path(kind: NamedResource, name: str) -> str:
    # Names may hold anything; the sign keeps `.` and `..` from meaning a folder.
    return f"{NAMED_CONFIGS[kind]}/={quote(name, safe='')}"


def name_of_config_path(kind: NamedResource, path: str) -> str:
    return unquote(path[len(NAMED_CONFIGS[kind]) + 2 :])


def entity_root(entity: ClientEntity) -> str:
    if entity.ip is not None:
        return IP_CONFIGS
    return CLIENT_CONFIGS if entity.user is None else USER_CONFIGS


def entity_config_path(entity: ClientEntity) -> str:
    root = entity_root(entity)
    parts = [name for name in (entity.user, entity.client_id, entity.ip) if name is not None]
    return f"{root}/{f'/{_CLIENTS_OF_USER}/'.join(map(_entity_znode, parts))}"


def entity_of_config_path(path: str) -> ClientEntity | None:
    """None for the folder between a user and its client ids."""
    _, _, kind, first, *rest = path.split("/")
    name = _entity_name(first)
    if f"/config/{kind}" == IP_CONFIGS:
        return ClientEntity(ip=name)
    if f"/config/{kind}" == CLIENT_CONFIGS:
        return ClientEntity(client_id=name)
    if not rest:
        return ClientEntity(user=name)
    return ClientEntity(user=name, client_id=_entity_name(rest[1])) if len(rest) == 2 else None


def _entity_znode(name: str) -> str:
    if name == DEFAULT_NAME:
        return _DEFAULT_ENTITY
    # Java's encoder keeps no tilde. ZooKeeper has no znodes called `.` and `..`.
    quoted = quote(name, safe="").replace("~", "%7E")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _entity_name(znode: str) -> str:
    return DEFAULT_NAME if znode == _DEFAULT_ENTITY else unquote(znode)


def decode_entities(below: Mapping[str, Node]) -> dict[ClientEntity, dict[str, str]]:
    """From everything below one of the roots."""
    found = {}
    for path, node in below.items():
        entity = entity_of_config_path(path)
        if entity is not None and node.data:
            found[entity] = decode_config(node)
    return found


def acl_path(pattern: ResourcePattern) -> str:
    root = LITERAL_ACLS if pattern.pattern_type is PatternType.LITERAL else PREFIXED_ACLS
    # Names of topics, `*` and kafka-cluster stay as Kafka writes them.
    name = quote(pattern.name, safe="*:=@,")
    name = name.replace(".", "%2E") if name in (".", "..") else name
    return f"{root}/{pattern.resource_type.title}/{name}"


def pattern_of_acl_path(path: str) -> ResourcePattern | None:
    """None for the folder of a type."""
    folder, _, name = path.rpartition("/")
    if folder not in _ACL_FOLDERS:
        return None
    resource_type, pattern_type = _ACL_FOLDERS[folder]
    return ResourcePattern(resource_type, unquote(name), pattern_type)


def encode_acls(entries: Iterable[Entry]) -> bytes:
    return _dump(
        {
            "version": 1,
            "acls": [
                {
                    "principal": entry.principal,
                    "permissionType": entry.permission.title,
                    "operation": entry.operation.title,
                    "host": entry.host,
                }
                for entry in sorted(entries)
            ],
        }
    )


def decode_acls(node: Node) -> frozenset[Entry]:
    return frozenset(
        Entry(
            one["principal"],
            one["host"],
            _OPERATIONS[one["operation"]],
            _PERMISSIONS[one["permissionType"]],
        )
        for one in _list(_load(node)["acls"])
    )


_OPERATIONS: Final = {operation.title: operation for operation in AclOperation}
_PERMISSIONS: Final = {permission.title: permission for permission in Permission}


def decode_all_acls(below: Mapping[str, Node]) -> dict[ResourcePattern, frozenset[Entry]]:
    """From everything below one of the two roots."""
    found = {}
    for path, node in below.items():
        pattern = pattern_of_acl_path(path)
        if pattern is not None:
            found[pattern] = decode_acls(node)
    return found


def encode_acl_changes(patterns: Iterable[ResourcePattern]) -> bytes:
    return _dump({"version": 1, "paths": [acl_path(pattern) for pattern in patterns]})


def decode_acl_changes(node: Node) -> list[str]:
    return _list(_load(node)["paths"]) if node.data else []


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    return _dump(
        {
            "version": 3,
            "owner": token.owner,
            "tokenRequester": token.requester,
            "renewers": list(token.renewers),
            "issueTimestamp": token.issued_at_ms,
            "maxTimestamp": token.max_at_ms,
            "expiryTimestamp": token.expires_at_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(node: Node) -> DelegationToken:
    content: dict[str, Any] = _load(node)
    return DelegationToken(
        token_id=content["tokenId"],
        owner=content["owner"],
        requester=content.get("tokenRequester", content["owner"]),
        renewers=tuple(content["renewers"]),
        issued_at_ms=content["issueTimestamp"],
        max_at_ms=content["maxTimestamp"],
        expires_at_ms=content["expiryTimestamp"],
    )


def decode_tokens(below: Mapping[str, Node]) -> dict[str, DelegationToken]:
    return {token.token_id: token for token in map(decode_token, below.values())}


def create_topic(topic: TopicState, *, controller_epoch: int) -> Iterator[Operation]:
    """Everything that a new topic adds to the store."""
    yield Create(topic_path(topic.name), encode_topic(topic))
    yield Create(topic_config_path(topic.name), encode_config(topic.overrides))
    yield Create(f"{topic_path(topic.name)}/partitions")
    yield from create_partitions(topic, 0, controller_epoch=controller_epoch)


def create_partitions(
    topic: TopicState, first: int, *, controller_epoch: int
) -> Iterator[Operation]:
    """The topic's partitions from number `first` on."""
    for number, partition in enumerate(topic.partitions[first:], start=first):
        path = partition_path(topic.name, number)
        yield Create(path)
        data = encode_partition(partition, controller_epoch, topic.topic_id)
        yield Create(f"{path}/state", data)


def delete_topic(topic: TopicState) -> Iterator[Operation]:
    for number in range(len(topic.partitions)):
        path = partition_path(topic.name, number)
        yield Delete(f"{path}/state")
        yield Delete(path)
    yield Delete(f"{topic_path(topic.name)}/partitions")
    yield Delete(topic_path(topic.name))
    yield Delete(topic_config_path(topic.name))


def encode_topic(topic: TopicState) -> bytes:
    return _dump(
        {
            "version": 3,
            "topic_id": encode_uuid(topic.topic_id),
            "partitions": {
                str(number): list(partition.replicas)
                for number, partition in enumerate(topic.partitions)
            },
            "adding_replicas": _by_number(part.adding for part in topic.partitions),
            "removing_replicas": _by_number(part.removing for part in topic.partitions),
        }
    )


def _by_number(replicas: Iterable[tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(number): list(some) for number, some in enumerate(replicas) if some}


def encode_partition(
    partition: PartitionState, controller_epoch: int, topic_id: uuid.UUID
) -> bytes:
    """Kafka's keys and, if a cluster's writer has left its token, ours.

    The replicas are in the topic's znode too, where Kafka has them. Here they share the version
    of the state, so a reader gets both as they were written together.
    """
    # Built by hand: at ten thousand partitions json.dumps was a third of a start.
    ours = ""
    if partition.writer_token:
        ours = (
            f',"min_isr":{partition.min_isr},"elr":{_numbers(partition.elr)},'
            f'"last_known_elr":{_numbers(partition.last_known_elr)},'
            f'"replicas":{_numbers(partition.replicas)},"adding":{_numbers(partition.adding)},'
            f'"removing":{_numbers(partition.removing)},'
            f'"topic_id":"{encode_uuid(topic_id)}","writer_token":"{partition.writer_token}"'
        )
        # Rare, and only for what replicas log: versions that do not know it need not.
        if partition.unclean_epoch >= 0:
            ours += f',"unclean_epoch":{partition.unclean_epoch}'
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{partition.leader},"version":1,'
        f'"leader_epoch":{partition.leader_epoch},"isr":{_numbers(partition.isr)}{ours}}}'
    ).encode()


def _numbers(numbers: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, numbers))}]"


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic's own znode: the replicas of each partition, and those being added or removed."""

    topic_id: uuid.UUID
    # Copied from the states of its partitions.
    topic_id_text: str
    replicas: list[tuple[int, ...]]
    adding: dict[int, tuple[int, ...]]
    removing: dict[int, tuple[int, ...]]
    version: int


def decode_topic(node: Node) -> TopicEntry | None:
    """None for a topic whose creation or deletion is incomplete: it does not exist."""
    if not node.data:
        return None
    content = json.loads(node.data)
    assigned = content["partitions"]
    return TopicEntry(
        topic_id=decode_uuid(content["topic_id"]),
        topic_id_text=content["topic_id"],
        replicas=[tuple(assigned[str(number)]) for number in range(len(assigned))],
        adding=_numbered(content.get("adding_replicas", {})),
        removing=_numbered(content.get("removing_replicas", {})),
        version=node.version,
    )


def _numbered(replicas: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(number): tuple(some) for number, some in replicas.items()}


def decode_partition(node: Node, entry: TopicEntry, number: int) -> PartitionState | None:
    """None if the state is that of another topic of the same name.

    A state without replicas (a new topic's, or Kafka's) has those of `entry`.
    """
    content = json.loads(node.data)
    if content.get("topic_id", entry.topic_id_text) != entry.topic_id_text:
        return None
    if "replicas" in content:
        assigned = (content["replicas"], content["adding"], content["removing"])
    else:
        assigned = (
            entry.replicas[number],
            entry.adding.get(number, ()),
            entry.removing.get(number, ()),
        )
    replicas, adding, removing = map(tuple, assigned)
    return PartitionState(
        leader=content["leader"],
        leader_epoch=content["leader_epoch"],
        isr=tuple(content["isr"]),
        replicas=replicas,
        version=node.version,
        min_isr=content.get("min_isr", 1),
        elr=tuple(content.get("elr", ())),
        last_known_elr=tuple(content.get("last_known_elr", ())),
        adding=adding,
        removing=removing,
        writer_token=content.get("writer_token", ""),
        unclean_epoch=content.get("unclean_epoch", -1),
    )


def writer_token(node: Node) -> str:
    return str(_load(node).get("writer_token", ""))


def decode_topics(topics: Mapping[str, Node], configs: Mapping[str, Node]) -> list[TopicState]:
    """Topics from everything below /brokers/topics and /config/topics."""
    decoded = []
    for path, node in topics.items():
        name = path[len(TOPICS) + 1 :]
        if "/" in name or (entry := decode_topic(node)) is None:
            continue
        partitions = []
        for number in range(len(entry.replicas)):
            state = decode_partition(topics[partition_state_path(name, number)], entry, number)
            assert state is not None, path
            partitions.append(state)
        overrides = configs.get(topic_config_path(name))
        decoded.append(
            TopicState(
                name=name,
                topic_id=entry.topic_id,
                partitions=partitions,
                overrides={} if overrides is None else decode_config(overrides),
            )
        )
    return decoded


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(sorted(overrides.items()))})


def decode_config(node: Node) -> dict[str, str]:
    config = _load(node)["config"]
    assert isinstance(config, dict)
    return config


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(node: Node) -> str:
    return str(_load(node)["id"])


def encode_producer_block(broker_id: int, block: range) -> bytes:
    return _dump(
        {
            "version": 1,
            "broker": broker_id,
            # Kafka writes these two as strings.
            "block_start": str(block.start),
            "block_end": str(block.stop - 1),
        }
    )


def decode_producer_block(node: Node) -> range:
    content = _load(node)
    return range(int(str(content["block_start"])), int(str(content["block_end"])) + 1)


def encode_broker(broker: BrokerState, now_ms: int) -> bytes:
    return _dump(
        {
            "version": 5,
            "host": broker.endpoints[0].host if broker.endpoints else None,
            "port": broker.endpoints[0].port if broker.endpoints else -1,
            "endpoints": [
                f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
                for endpoint in broker.endpoints
            ],
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.protocol for endpoint in broker.endpoints
            },
            "rack": broker.rack,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "features": {FEATURE: {"min_version": LOWEST, "max_version": broker.level}},
            # Not Kafka's: it distinguishes a live node from one whose session has yet to end.
            "epoch": broker.epoch,
            "is_stopping": broker.is_stopping,
            "log_ends": [
                [
                    end.where.topic,
                    end.where.partition,
                    end.leader_epoch,
                    end.last_epoch,
                    end.next_offset,
                ]
                for end in broker.log_ends
            ],
        }
    )


def decode_broker(broker_id: int, node: Node) -> BrokerState:
    content = _load(node)
    entries, protocols = content["endpoints"], content["listener_security_protocol_map"]
    assert isinstance(entries, list)
    assert isinstance(protocols, dict)
    endpoints = []
    for entry in entries:
        listener, _, address = entry.partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(listener, host, int(port), protocols[listener]))
    rack = content.get("rack")
    return BrokerState(
        broker_id,
        tuple(endpoints),
        None if rack is None else str(rack),
        epoch=int(str(content.get("epoch", NO_BROKER_EPOCH))),
        is_stopping=bool(content.get("is_stopping", False)),
        log_ends=tuple(
            LogEnd(TopicPartition(topic, number), *end)
            for topic, number, *end in _list(content.get("log_ends", []))
        ),
        level=_known_level(content.get("features")),
    )


def _known_level(features: object) -> int:
    """Versions before levels announce no features."""
    found = features.get(FEATURE) if isinstance(features, dict) else None
    return int(found["max_version"]) if isinstance(found, dict) else LOWEST


def encode_level(level: int) -> bytes:
    return _dump({"version": 1, "status": 1, "features": {FEATURE: level}})


def decode_level(node: Node) -> int:
    features = _load(node).get("features")
    return int(features.get(FEATURE, LOWEST)) if isinstance(features, dict) else LOWEST


def encode_incarnation(token: str, *, is_suspect: bool) -> bytes:
    return _dump({"version": 1, "incarnation": token, "is_suspect": is_suspect})


def decode_incarnation(node: Node) -> Incarnation:
    return Incarnation(node.version, bool(_load(node).get("is_suspect", False)))


def encode_controller(broker_id: int, token: str, now_ms: int) -> bytes:
    return _dump(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": -1,
            "session": token,
        }
    )


def decode_controller(node: Node) -> int:
    return int(str(_load(node)["brokerid"]))


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _dump(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _list(value: object) -> list[Any]:
    assert isinstance(value, list)
    return value


def _load(node: Node) -> dict[str, object]:
    content = json.loads(node.data)
    assert isinstance(content, dict)
    return content
