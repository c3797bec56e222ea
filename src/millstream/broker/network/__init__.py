"""Sockets and bytes: listening, connections, frames in, replies out.

Does not know what a frame means: `Server` gets the function that answers one.
May use storage's file ranges and wire's frame header, and no other room of the broker.
"""
