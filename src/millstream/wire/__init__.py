"""Kafka's messages as bytes: frames, headers, and the declaration of every API.

`message` is how a message is declared, `apis/<name>` declares one API, `codec` reads and writes
what is declared. Produce, Fetch and OffsetCommit, which cost the most, have codecs written by
hand; `repeated` and `repeated_commit` recognise a request that a client sends again.
May use the ground modules. Does no I/O, and does not know what a node does with a message.
"""
