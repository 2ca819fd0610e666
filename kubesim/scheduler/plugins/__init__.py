"""Plugins: filters, scores and queueing hints, as kube-scheduler's own."""
