"""Deletions of pods: grace, preconditions, finalizers, propagation; and methods that are not there."""

from __future__ import annotations

from tests.conformance.recorded.asks import delete, get, merge, post, put
from tests.conformance.recorded.script.objects import PODS, binding, pod

A, B, YAM = f"{PODS}/a", f"{PODS}/b", f"{PODS}/yam"

ASKS = [
    delete(f"{PODS}/none"),
    delete(YAM, {"preconditions": {"uid": "x"}}),
    delete(YAM, {"preconditions": {"resourceVersion": "1"}}),
    delete(f"{YAM}?gracePeriodSeconds=10"),
    delete(YAM),
    delete(YAM, {"gracePeriodSeconds": 5}),
    post(f"{YAM}/binding", binding("yam")),
    merge(YAM, {"metadata": {"finalizers": ["a.b/c"]}}, id="finalizer-too-late"),
    delete(YAM, {"gracePeriodSeconds": 0}),
    get(YAM),
    delete(B),
    delete(B),
    delete(A, {"propagationPolicy": "Foreground", "gracePeriodSeconds": 0}),
    delete(A, {"propagationPolicy": "Sideways"}),
    merge(A, {"metadata": {"finalizers": ["foregroundDeletion", "a.b/c"]}}, id="finalizers-too-late"),
    merge(A, {"metadata": {"finalizers": None}}),
    get(A),
    get(f"{A}/foo"),
    get("/api/v1/foo"),
    get("/apis/foo/v1/bar"),
    get("/foo"),
    post("/api/v1/pods", pod("q")),
    put(PODS, pod("q")),
    delete("/api/v1/pods"),
    post(f"{PODS}/p2", pod("p2")),
]
