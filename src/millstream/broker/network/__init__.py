"""Sockets and bytes: listening, connections, frames in, replies out.

Knows nothing of what a frame means; `Server` is given the function that answers one.
May use storage's file ranges and wire's frame header, and no other room of the broker.
"""
