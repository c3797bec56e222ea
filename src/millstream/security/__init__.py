"""Who a client is, what it may do, and how much: decisions without I/O.

Authentication (the server's side of SASL, certificates to principals), access control lists
and client quotas are plain functions and small state machines here: time, randomness and
stored credentials are passed in. `broker/security` keeps the state and asks them; the
client's side of TLS and SASL is in `client/security.py`.
"""
