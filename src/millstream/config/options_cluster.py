"""Options of the node: cluster, controller and ZooKeeper."""

from typing import Final

from millstream.config.option import Option
from millstream.config.words import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    NO_MIGRATION,
    PASSWORD,
    REFUSED,
    STRING,
    WORKS,
)

TITLE: Final = "Cluster, controller and ZooKeeper"

OPTIONS: Final = (
    Option(
        "broker.heartbeat.interval.ms", INT, 2000, "How often a node reports to the controller."
    ),
    Option(
        "broker.session.timeout.ms",
        INT,
        9000,
        "A node that is silent for this long counts as gone.",
    ),
    Option(
        "initial.broker.registration.timeout.ms",
        INT,
        60000,
        "How long a starting node tries to register.",
    ),
    Option("controller.socket.timeout.ms", INT, 30000, "How long the controller waits for a node."),
    Option(
        "controller.performance.always.log.threshold.ms",
        LONG,
        2000,
        "Controller events slower than this are always logged.",
        minimum=0,
    ),
    Option(
        "controller.performance.sample.period.ms",
        LONG,
        60000,
        "How often the controller's speed is logged.",
        minimum=100,
    ),
    Option(
        "controller.quorum.voters",
        LIST,
        (),
        "The nodes that vote for the controller; only this node itself may be named so far.",
        WORKS,
    ),
    Option(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "Where the controller quorum is found; only one server may be named so far.",
        WORKS,
    ),
    Option(
        "controller.quorum.append.linger.ms",
        INT,
        25,
        "How long metadata records are gathered before they are written.",
        minimum=0,
    ),
    Option(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        "Let a new controller join the quorum by itself.",
    ),
    Option(
        "controller.quorum.election.backoff.max.ms",
        INT,
        1000,
        "The longest pause before a new election.",
        minimum=0,
    ),
    Option(
        "controller.quorum.election.timeout.ms",
        INT,
        1000,
        "How long an election may take.",
        minimum=0,
    ),
    Option(
        "controller.quorum.fetch.max.bytes", INT, 1048576, "Bytes of one metadata fetch.", minimum=1
    ),
    Option(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        1048576,
        "Bytes of one fetch of a metadata snapshot.",
        minimum=1,
    ),
    Option(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2000,
        "How long a voter goes without a successful fetch before it becomes a candidate.",
        minimum=0,
    ),
    Option(
        "controller.quorum.request.timeout.ms",
        INT,
        2000,
        "How long a quorum request may take.",
        minimum=0,
    ),
    Option(
        "controller.quorum.retry.backoff.ms",
        INT,
        20,
        "The pause before a quorum request is sent again.",
        minimum=0,
    ),
    Option(
        "controller.quota.window.num",
        INT,
        11,
        "Samples kept to measure the quota of controller changes.",
        minimum=1,
    ),
    Option(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "The length of one sample for controller changes.",
        minimum=1,
    ),
    Option("metadata.log.dir", STRING, None, "Where Kafka keeps its metadata log."),
    Option(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20971520,
        "Bytes of metadata between two snapshots.",
        minimum=1,
    ),
    Option(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        3600000,
        "Time between two snapshots of the metadata.",
        minimum=0,
    ),
    Option(
        "metadata.log.segment.bytes",
        INT,
        1073741824,
        "Segment size of the metadata log.",
        minimum=8388608,
    ),
    Option(
        "metadata.log.segment.min.bytes",
        INT,
        8388608,
        "The smallest segment size of the metadata log.",
        minimum=12,
    ),
    Option("metadata.log.segment.ms", LONG, 604800000, "Segment age of the metadata log."),
    Option(
        "metadata.max.idle.interval.ms",
        INT,
        500,
        "How often an idle controller writes a no-op record.",
        minimum=0,
    ),
    Option(
        "metadata.max.retention.bytes",
        LONG,
        104857600,
        "Size of metadata log and snapshots before old ones go.",
    ),
    Option(
        "metadata.max.retention.ms",
        LONG,
        604800000,
        "Age of metadata log and snapshots before old ones go.",
    ),
    Option(
        "internal.metadata.delete.delay.millis",
        LONG,
        60000,
        "How long deleted metadata files stay (a test setting of Kafka).",
    ),
    Option(
        "internal.metadata.log.segment.bytes",
        INT,
        None,
        "Segment size of the metadata log (a test setting of Kafka).",
    ),
    Option(
        "internal.metadata.max.batch.size.in.bytes",
        INT,
        8388608,
        "Largest metadata batch (a test setting of Kafka).",
    ),
    Option(
        "internal.metadata.max.fetch.size.in.bytes",
        INT,
        8388608,
        "Largest metadata fetch (a test setting of Kafka).",
    ),
    Option(
        "zookeeper.connect",
        STRING,
        None,
        "The ZooKeeper ensemble that coordinates the cluster: host:port, several with commas, "
        "and a path below which everything is kept, as in `a:2181,b:2181/cluster`. Without it "
        "the node is alone.",
        WORKS,
    ),
    Option(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long a first connection to ZooKeeper may take; unset means as long as a session.",
        WORKS,
    ),
    Option(
        "zookeeper.session.timeout.ms",
        INT,
        18000,
        "How long ZooKeeper waits for a silent node. A dead process is noticed sooner.",
        WORKS,
        minimum=1,
    ),
    Option(
        "zookeeper.sync.time.ms",
        INT,
        2000,
        "How far a ZooKeeper follower may be behind; unused by Kafka too.",
    ),
    Option(
        "zookeeper.max.in.flight.requests",
        INT,
        10,
        "Requests to ZooKeeper that may be unanswered.",
        minimum=1,
    ),
    Option(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        "Let only nodes with the same `millstream.zookeeper.digest` change what is in ZooKeeper.",
        WORKS,
    ),
    Option(
        "zookeeper.consumers.mirror",
        BOOLEAN,
        False,
        "Not Kafka's. Copy members and committed offsets of groups to /consumers in ZooKeeper, for "
        "tools that look there. They are written after the commit and never read back.",
        WORKS,
    ),
    Option(
        "zookeeper.metadata.migration.enable",
        BOOLEAN,
        False,
        "Let Kafka move its metadata from ZooKeeper to its own quorum.",
        REFUSED,
        reason=NO_MIGRATION,
    ),
    Option(
        "zookeeper.metadata.migration.min.batch.size",
        INT,
        200,
        "Records in one batch of Kafka's migration.",
        minimum=1,
    ),
    Option(
        "zookeeper.clientCnxnSocket", STRING, None, "The Java class of the connection to ZooKeeper."
    ),
    Option(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        False,
        "Use TLS to ZooKeeper.",
        WORKS,
    ),
    Option("zookeeper.ssl.cipher.suites", LIST, None, "Ciphers allowed to ZooKeeper."),
    Option(
        "zookeeper.ssl.crl.enable",
        BOOLEAN,
        False,
        "Check revocation lists of ZooKeeper's certificate.",
    ),
    Option(
        "zookeeper.ssl.ocsp.enable", BOOLEAN, False, "Ask by OCSP about ZooKeeper's certificate."
    ),
    Option("zookeeper.ssl.enabled.protocols", LIST, None, "TLS versions allowed to ZooKeeper."),
    Option("zookeeper.ssl.protocol", STRING, "TLSv1.2", "TLS version used to ZooKeeper."),
    Option(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must be for its host name. Empty: any host will do.",
        WORKS,
        choices=("HTTPS", ""),
    ),
    Option(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        "The key and the certificate for ZooKeeper, in one PEM file.",
        WORKS,
    ),
    Option(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "The password of the key file for ZooKeeper.",
        WORKS,
    ),
    Option(
        "zookeeper.ssl.keystore.type", STRING, None, "The format of the key file for ZooKeeper."
    ),
    Option(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        "The certificates that ZooKeeper's must be signed by, in a PEM file.",
        WORKS,
    ),
    Option(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        None,
        "The password of the trusted certificates for ZooKeeper.",
    ),
    Option(
        "zookeeper.ssl.truststore.type",
        STRING,
        None,
        "The format of the trusted certificates for ZooKeeper.",
    ),
    Option(
        "password.encoder.cipher.algorithm",
        STRING,
        "AES/CBC/PKCS5Padding",
        "The cipher for passwords that Kafka keeps in ZooKeeper.",
    ),
    Option(
        "password.encoder.iterations",
        INT,
        4096,
        "The rounds of the cipher for stored passwords.",
        minimum=1024,
    ),
    Option(
        "password.encoder.key.length",
        INT,
        128,
        "The key length of the cipher for stored passwords.",
        minimum=8,
    ),
    Option(
        "password.encoder.keyfactory.algorithm",
        STRING,
        None,
        "How the key for stored passwords is derived.",
    ),
    Option(
        "password.encoder.old.secret", PASSWORD, None, "The former secret for stored passwords."
    ),
    Option("password.encoder.secret", PASSWORD, None, "The secret for stored passwords."),
    Option(
        "millstream.zookeeper.digest",
        PASSWORD,
        None,
        "Not Kafka's. `user:password` that the node shows to ZooKeeper.",
        WORKS,
    ),
    Option(
        "millstream.recovery.strategy",
        STRING,
        "balanced",
        "Not Kafka's. When every replica that had all records may have lost some: `balanced` waits "
        "for all of them and takes the longest log, `manual` waits for a person.",
        WORKS,
        choices=("balanced", "manual"),
    ),
    Option(
        "millstream.stray.retention.ms",
        LONG,
        24 * 3600 * 1000,
        "Not Kafka's. In a cluster: how long the files of a partition are kept that belongs to a "
        "topic which was deleted while the node was away. -1 keeps them.",
        WORKS,
        minimum=-1,
    ),
    Option(
        "millstream.scrub.bytes.per.second",
        LONG,
        10 << 20,
        "Not Kafka's. In a cluster: how fast a node reads its logs again to compare checksums. "
        "What is damaged is fetched again from another node. 0: only what somebody complained of.",
        WORKS,
        minimum=0,
    ),
    Option(
        "millstream.scrub.interval.ms",
        LONG,
        7 * 24 * 3600 * 1000,
        "Not Kafka's. How long after the beginning of one such round the next begins; the first "
        "begins with the node.",
        WORKS,
        minimum=1,
    ),
)
