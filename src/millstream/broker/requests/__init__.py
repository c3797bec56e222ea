"""From a frame to its handler: dispatch, admission, fetch sessions, and the views of
topics and options that several handlers show.

Stands on the network room. Handlers (`broker/handlers/`) stand on this one.
"""
