"""Each policy beside what Kubernetes has natively, on the same work and one real control plane: see `__main__`."""
