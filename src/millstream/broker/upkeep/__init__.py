"""Work that nobody asks for: retention, compaction, checkpoints, scrubbing, healing.

Runs beside the requests, in small steps, and is never on the way of one.
"""
