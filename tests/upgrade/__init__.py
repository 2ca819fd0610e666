"""Versions of the definitions and of the service after each other, on one real control plane, while gangs run.

`scene` is what there is in the cluster; `former` is the earlier version: its definitions, what its service wrote
(recorded by `python -m tests.upgrade`, which needs this repository's history), and that service itself.
"""
