"""The `millstream` command: one module per command group, loaded when it is used."""
