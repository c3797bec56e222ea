"""The classic group protocol: members join, their leader assigns, all of them sync.

`group` is the state of a group, `protocol` what each request does to it, `rebalance` the
steps from one generation to the next. Plain functions of state, request and time: no loop,
no log, no clock.
"""
