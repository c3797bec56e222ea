"""What each API does: one file per API, named as its declaration in `wire/apis`.

A handler translates a request into calls to the code that decides, and the result into a
response. It states in its signature which parts of the node it uses (`requests.services`).
May use every room of the broker except `broker` itself. `requests.routes` finds the files.
"""
