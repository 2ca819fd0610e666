"""Gangs by ghost pods, for any kube-scheduler."""
