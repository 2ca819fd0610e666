"""Measuring: clusters, connections and clocks of the measurements, and what a figure is."""
