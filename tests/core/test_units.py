"""Vectors of units."""

from __future__ import annotations

from extender.core.ledger.units import add
from extender.kube.names import ResourceKey


def test_vectors_add_up_resource_by_resource() -> None:
    cpu, pods = ResourceKey("cpu"), ResourceKey("pods")
    assert add([{cpu: 1}, {cpu: 2, pods: 1}, {}]) == {cpu: 3, pods: 1}
