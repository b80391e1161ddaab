"""How the queue is seen from Prometheus: dashboards, rules, alerts, and pictures of them."""
