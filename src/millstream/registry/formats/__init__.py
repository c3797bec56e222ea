"""Schemas as text: is it valid, what is its canonical form, what does it contain.

One module per format. Each takes the text of a schema and the schemas that it refers to, and knows
no subject, version or id. Hostile text must end in `InvalidSchema`, soon and with little memory.
"""
