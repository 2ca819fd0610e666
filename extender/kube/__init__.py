"""Kubernetes for the service and the embedded cluster: names, quantities, object shapes, requests.

This package imports no other package of `extender`. `names`, `quantities`, `node_match` and `label_match` are pure: the
core may import these modules only.
"""
