"""Kubernetes as both the service and the embedded cluster know it: names, quantities, shapes of objects, requests.

What more than one room, and kubesim, need of it. It imports no other room of `extender`, and must not know Escher: no
gang, no ephemeral resource, no ledger. `names`, `quantities`, `node_match` and `label_match` are pure, and the only
modules here that the core may import.
"""
