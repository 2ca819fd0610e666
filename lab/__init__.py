"""Developers' and researchers' tools: comparisons, a demo, local clusters, simulation. An extra."""
