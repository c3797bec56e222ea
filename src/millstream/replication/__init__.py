"""One partition on this node, and its copies on others.

`partition` is what requests see; `replicated` gives it a role in a cluster. The rules are plain
functions and values without I/O: `leadership`, `isr`, `progress`, `following`, `throttle`,
`admission`. They are driven by `leader`, `follower_log`, `isr_proposer` and `replica_fetcher`;
`group_commit` makes records safe on the disk, `waiting` holds those who wait.
May use storage, cluster, records and wire. Knows no handler, and the broker only as what it is
given (`node`).
"""
