"""The decisions of the coordinators, as plain functions: groups, offsets, transactions.

A decision returns records; `journal` appends them, applies them and answers when they are
committed. `codecs` turns records into Kafka's bytes. The decisions use no loop, socket or
clock: time and random values are passed in. `broker/coordination` hosts all of it.
"""
