"""One partition on this node, and its copies on others.

`partition` is what requests see; `replicated` gives it a role in a cluster. The rules are plain
functions and values without I/O: `leadership`, `isr`, `progress`, `following`, `throttle`,
`admission`. `leader`, `follower_log`, `isr_proposer` and `replica_fetcher` drive them;
`group_commit` makes records safe on the disk, `waiting` holds waiting requests.
May use storage, cluster, client, records and wire. Knows no handler, and the broker only
through the functions that it is given (`node`).
"""
