"""What a node knows about its clients: credentials, ACLs and quotas in force.

The state comes from the coordination store and the options, and follows their changes. The
decisions are in `millstream.security`. Requests ask here; nothing here knows a handler.
"""
