"""Numbers for Prometheus: one table of metrics, from which /metrics, the dashboard, the alert
rules and the documentation are made."""
