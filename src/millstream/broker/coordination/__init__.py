"""The coordinators that this node hosts: groups, transactions, producer ids.

The decisions are plain functions in `millstream.coordinators`. This room gives them their
partitions, timers and journals. It may use `node`, and knows no socket.
"""
