"""Parses log lines into events: Arrow batches in, Arrow batches out, with compiled loops.

`parser` is the way in; `rules` choose a format, patterns or a function per source, `layouts`
lists the formats, `line_patterns` compiles patterns and `suggesting` guesses them, `scanning`
picks the compiled scanner (`_scan.pyx`) or the Python one, `custom` calls a user's function,
`masking` hides personal data, `schema` lists the columns. `templates` groups messages.
Does not know Spark, topics, or the clock; import contracts check this.
"""
