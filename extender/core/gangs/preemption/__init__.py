"""Preemption: which pods leave for a gang."""
