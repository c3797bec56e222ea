"""The v2 record batch: its header, its records, and what a client's batch is held against.

`batch` reads and stamps a header in place, `records` decodes what is behind it, `builder` makes
batches, `validation` says which a client may not write. `columns` and `rows` are the compiled
loops over many records, each with a plain Python form that means the same.
May use the ground modules. Knows bytes only: no files, no offsets of a log, no time.
"""
