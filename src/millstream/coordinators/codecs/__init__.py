"""The records of the internal topics as bytes, in Kafka's formats.

`changes` are the records of `__consumer_offsets` as plain values: decisions return them and
`apply` takes them. `table` turns a change into a key and a value, and back; `classic`, `consumer`,
`offsets` and `transactions` hold the formats. `embedded` reads the clients' own bytes inside them.
Plain functions of bytes; knows no state and no log.
"""
