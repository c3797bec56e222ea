"""The coordination store: `store` is the interface, in ZooKeeper's shape.

`zookeeper` is the driver for a cluster and alone knows kazoo, `embedded` the SQLite file of
a standalone node, `memory` the one for tests and the simulator. Knows nothing of topics.
"""
