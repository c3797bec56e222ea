"""A node as a member of a cluster: joining and leaving, its replicas and their roles,
connections to other nodes, and replication throttles.

A standalone node imports none of it.
"""
