"""Kills the leader of two replicas of the service on one control plane, again and again."""
