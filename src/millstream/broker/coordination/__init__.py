"""The coordinators this node hosts: groups, transactions, producer ids.

Decisions are plain functions in `millstream.coordinators`; here they get their partitions,
their timers and their journals. Knows no socket.
"""
