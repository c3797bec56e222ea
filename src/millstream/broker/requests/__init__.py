"""From a frame to its handler: dispatch, admission, fetch sessions, and the views of
topics and options that several handlers share.

Builds on the rooms below it (`network`, `node`, `coordination`, `upkeep`).
Handlers (`broker/handlers/`) build on this one, and it imports them only by name.
"""
