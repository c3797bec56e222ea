"""What the coordinators decide, as plain functions: groups, offsets, transactions.

A decision returns records; `journal` appends them, applies them and answers when they are
committed. `codecs` turns records into Kafka's bytes. No loop, socket or clock: time and
chance are passed in. `broker/coordination` hosts all of it.
"""
