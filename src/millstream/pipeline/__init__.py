"""Log analytics on Spark: topics of log lines become live windows, tables and reports.

`spec` is the pipeline file, `queries` the table of streaming queries, `run` runs them;
`windows`, `ended_visits` and `watching` are their results, `storing` fills the tables,
`reporting` writes reports. Python runs per micro-batch, not per line. May use spark, warehouse
and lines; knows no command and no broker. Installed with the extra `pipeline`.
"""
