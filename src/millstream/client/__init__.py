"""Asking nodes: the one client of the protocol, for the CLI, Spark, replication and tests.

`protocol` is a connection without the connection: frames, correlation, versions. `blocking` and
`aio` drive it over sockets, `security` is TLS and SASL, `fetch` the bytes of a Fetch as those
who send it see them. Knows `wire`, and nothing of logs, clusters or commands.
"""
