"""What the nodes of a cluster agree on: topics, leaders, options, and which nodes are alive.

`stores` holds the coordination store and its drivers, `znodes` its layout and which
component may write what. `changes`, `election`, `placement` and `rebalancing` decide, as plain
functions; `metadata` applies what clients request, `controller` keeps every partition led,
`membership` is a node's own place in the cluster. May use the ground modules and records; knows no
partition, and no socket except in `port_watch`.
"""
