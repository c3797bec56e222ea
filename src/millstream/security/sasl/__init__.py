"""The server's side of SASL: one module per mechanism.

Each reads a client's messages, says what to answer, and compares secrets in constant time. None
knows a socket, a clock or where credentials are kept.
"""
