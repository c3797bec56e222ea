"""Reports of days, weeks and months, from the table of events.

`periods` decides which reports are due, `events` queries the table, `sections` computes what a
report contains, `text` and `charts` render it, `reports` writes it as a whole directory.
May use the pipeline's spec, the warehouse and the readers of `millstream.spark`; starts no Spark.
"""
