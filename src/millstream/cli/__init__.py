"""The `millstream` command: one module per command or command group, loaded when it is used.

`main` lists the commands and turns failures into one line and an exit code; `failure` defines
the exit codes, `output` prints. A module with a prefix belongs to that command: `group_view` to
`group`. Commands may use every package. Only data goes to stdout; the rest goes to stderr.
"""
