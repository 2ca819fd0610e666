"""Admin: authorization, quotas of namespaces, safety switches, and leader election."""
