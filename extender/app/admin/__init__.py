"""Who may do what, quotas by namespace, switches, and which replica leads."""
