"""A node as a member of a cluster: joining and leaving, the roles of its replicas,
connections to other nodes, in-sync replicas, healing, and replication throttles.

Implements `node.Cluster`. May use `node`, `coordination` and `upkeep`, and the packages
`cluster` and `replication`. A standalone node imports none of it.
"""
