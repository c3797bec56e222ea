"""The node: a process that serves Kafka's protocol, made of rooms with one job each.

From the bottom: `network` (sockets and bytes), `node` (what all rooms may read and change),
`coordination` (hosted coordinators) and `upkeep` (background work), `membership` (a node in a
cluster), `requests` (from a frame to its handler), `handlers` (one file per API). `broker`
wires them together. A room imports only rooms below it; import contracts check this.
"""
