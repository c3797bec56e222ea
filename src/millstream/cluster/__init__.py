"""What the nodes of a cluster agree on: topics, leaders, options, and who is alive.

`stores` holds the coordination store and its drivers, `znodes` what is kept in it and who
may write it. `changes`, `election` and `placement` decide, as plain functions; `metadata`
applies what clients ask for, `controller` keeps every partition led, `membership` is a
node's own place. May use the ground modules and records; knows no partition and no socket
but the port watch's.
"""
