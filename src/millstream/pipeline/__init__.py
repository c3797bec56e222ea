"""Log analytics on Spark: topics of log lines into live windows, tables and reports.

A pipeline is one TOML file (`spec`). Everything about lines is a Spark expression; Python
runs per micro-batch, not per line. Installed with the extra `pipeline`.
"""
