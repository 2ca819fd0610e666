"""Processes of a cluster: how they are built, started, watched and stopped."""
