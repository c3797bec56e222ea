"""The ground the other rooms of the broker stand on.

`NodeState` is what they may read, `DataDirectory` what is on the disk, `Topics` the way
topics change, and `Cluster` what a node asks about other nodes; `Standalone` answers for a
node that has none. Imports no other room.
"""
