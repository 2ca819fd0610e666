"""Explain: answers about the cluster: explanations, what-if, remedies and dumps."""
