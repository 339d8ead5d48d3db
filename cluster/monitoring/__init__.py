"""A monitoring stack: Prometheus' configuration and rules, Grafana's dashboards."""
