"""Share groups (KIP-932): many consumers take records of the same partitions, one by one.

`heartbeat` decides who is in a group and which partitions it gets. `partition` decides who
gets which record of a partition. `stored` is what the share coordinator keeps of that.
"""
