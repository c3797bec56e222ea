"""The streams group protocol (KIP-1071): members report, the node assigns tasks.

A Kafka Streams application sends its topology when it joins. `topology` decides which internal
topics it needs and how many tasks there are, `assignor` computes the target assignment,
`reconcile` one member's next step, `epochs` a whole step of a group, `heartbeat` what a
heartbeat does, `endpoints` who answers interactive queries; `group` is the state. Plain
functions of state, request and time: no loop, no log, no clock.
"""
