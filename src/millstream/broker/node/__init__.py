"""What the other rooms of the broker build on.

`NodeState` is what they may read, `DataDirectory` the disk, `Topics` changes topics, and
`Cluster` is the interface to other nodes; `Standalone` implements it for a node without
any. Imports no other room.
"""
