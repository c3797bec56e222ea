"""The consumer group protocol (KIP-848): members send heartbeats, the node assigns.

`group` is the state of a group, `heartbeat` what a heartbeat does, `epochs` a whole step of
a group, `reconcile` one member's next step, `assignors` compute the target assignment,
`pattern` matches subscriptions by regular expression. Plain functions of state, request and
time: no loop, no log, no clock.
"""
