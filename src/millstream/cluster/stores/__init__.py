"""The coordination store and its drivers: `store` is the interface, modelled on ZooKeeper's.

`zookeeper` is the driver for a cluster and the only one that knows kazoo, `embedded` the
SQLite file of a standalone node, `memory` the one for tests and the simulator. `watchdog`
ends the session of a node that hangs. Knows nothing of topics.
"""
