"""Log analytics on Spark: topics of log lines become live windows, tables and reports.

`spec` is the pipeline file, `queries` starts the streaming query, `run` runs it. `line_pass` is
what a task does with its lines, `batch_results` what the driver makes of that; `open_results` has
the results that are not final yet. `reporting` writes reports. Python runs per batch of lines, not
per line. May use spark, warehouse and lines; knows no command and no broker. Installed with the
extra `pipeline`.
"""
