"""Bindings, and updates of the pod that has got one."""

from __future__ import annotations

from tests.conformance.recorded.asks import get, post, put
from tests.conformance.recorded.script.objects import NAMESPACES, OTHER_UID, PODS, binding

A = f"{PODS}/a"

ASKS = [
    post(f"{PODS}/none/binding", binding("none")),
    post(f"{A}/binding", binding("b")),
    post(f"{A}/binding", {"metadata": {"name": "a"}}),
    post(f"{A}/binding", {"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "x"}}),
    post(f"{A}/binding", binding("a", uid="123")),
    post(f"{A}/binding", binding("a", resourceVersion="1")),
    post(f"{PODS}/b/binding", binding("b")),
    post(f"{A}/binding?dryRun=All", binding("a")),
    post(f"{A}/binding", binding("a", annotations={"x": "y"}, labels={"l": "m"})),
    post(f"{A}/binding", binding("a")),
    post(f"{NAMESPACES}/asked/bindings", binding("yam"), id="without-the-pod"),
    get(A, id="bound"),
    put(A, {"metadata": {"uid": OTHER_UID}}, base="bound"),
    put(A, {"metadata": {"name": "zz"}}, base="bound"),
    put(A, {"metadata": {"resourceVersion": "1"}}, base="bound"),
    put(A, {"metadata": {"labels": {"n": "1"}}}, base="bound"),
    put(A, {"metadata": {"labels": {"n": "2"}}}, base="bound"),
    put(A, {"metadata": {"resourceVersion": None, "uid": None, "labels": {"n": "3"}}}, base="bound"),
    put(f"{PODS}/nono", {"metadata": {"name": "nono", "resourceVersion": None, "uid": None}}, base="bound"),
]
