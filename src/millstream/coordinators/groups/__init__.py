"""What groups of both protocols share: the state of a shard, committed offsets, describing
and deleting groups, and groups that change from one protocol to the other.

`requests` decides which protocol a request is for. Plain functions of state and time: no
loop, no log, no clock.
"""
