"""A schema registry with Confluent's REST API, on a compacted topic of any Kafka cluster.

`state.py` is the state, made from the records of the topic and from nothing else. `formats/` reads
schemas, `compatibility/` compares them, `decisions.py` decides what a request changes: plain
functions all. `log.py` reads and writes the topic, `election.py` and `membership.py` choose the one
instance that writes, `rest.py` is the REST API, and `registry.py` wires them.
"""
