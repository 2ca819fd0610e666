"""Compares each policy with native Kubernetes, on the same work and cluster: see `__main__`."""
