"""Can a schema read data that was written with another one? One module per format, and `levels`,
which says which pairs of versions a compatibility level compares. Plain functions."""
