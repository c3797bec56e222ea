"""The logs of one data directory: what is in the files, and what may be believed of them.

`log` is one partition's log with its parts (`segments`, `log_producers`, `epochs`, `syncing`),
`segment` one file with its indexes, `store` all logs of a directory. `recovery` opens what a
crash left; `retention`, `rolling` and `compaction` decide, as plain functions over numbers.
May use records and the ground modules. Touches the disk only through `files`; knows no loop,
no clock, no client and no other node.
"""
