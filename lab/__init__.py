"""What developers and researchers run: comparisons, the demonstration, clusters on loopback, simulations. An extra."""
