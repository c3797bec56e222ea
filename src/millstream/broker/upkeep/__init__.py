"""Background work: retention, compaction, checkpoints, scrubbing, stray directories.

It proceeds in small steps beside the requests, and no request ever waits for it. May use
`node` and the packages below the broker; knows no socket and no request.
"""
