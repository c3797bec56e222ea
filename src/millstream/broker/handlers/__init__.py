"""What this node does about each API: one file per API, named as its declaration in `wire/apis`.

A handler translates a typed request into a question to those who decide, and their reply into
a typed response. `requests/routes.py` finds it by its file name and says what it may state
about itself. Handlers know the parts of the node that they are given, and no sockets.
"""
