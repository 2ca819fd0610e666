"""What the service knows of the cluster: nodes, pods, reservations, and what waits."""
