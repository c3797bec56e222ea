"""Log lines into events: Arrow batches in, Arrow batches out, the loops over bytes compiled.

Knows formats, times and masking. Does not know Spark, topics, or the clock.
"""
