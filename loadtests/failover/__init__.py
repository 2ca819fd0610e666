"""Two replicas of the service on one control plane, of which the one that decides is killed again and again."""
