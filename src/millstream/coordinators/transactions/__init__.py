"""The transaction coordinator: producer epochs, open transactions, and how they end.

`state` holds the table of legal transitions, `decisions` what each request does,
`joint_commit` one commit for many producers. Plain functions of state, request and time:
no loop, no log, no clock.
"""
