"""The web console: what a cluster holds and does, in a browser.

`asking` sends requests to any Kafka cluster; `topics`, `groups` and `records` turn answers into
facts (`facts`). `node` reads what only a node's own process knows. `pages` declares every page
once, as a function from these to a dataclass: rendered as HTML, and as JSON under /api/v1.
"""
