"""The logs of one data directory: the files, and how far each can be trusted.

`log` is one partition's log with its parts (`segments`, `log_producers`, `epochs`, `syncing`),
`segment` one file with its indexes, `store` all logs of a directory. `recovery` opens a log
after a crash; `retention`, `rolling` and `compaction` decide, as plain functions of numbers.
May use records and the ground modules. Touches the disk only through `files`; knows no loop,
no clock, no client and no other node.
"""
