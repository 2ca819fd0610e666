"""What applications import: calls of Escher's management API, and what pods must carry.

    from escher_k8s import Escher

    with Escher("http://127.0.0.1:8080", namespace="team-a") as escher:
        escher.set_resource("data1", 4, node_spec="node-3", ttl_seconds=600)
        ask = escher.gang("train", size=8, each={"cpu": "4"}) & escher.resource_request("data1")
        pods = [ask.attach(pod) for pod in pods]

`AsyncEscher` has the same calls, to be awaited. `escher_k8s.esl` has the policies that need no service. This package is
light: it uses HTTP, and of the service's code only names, quantities and the policies for applications. It loads no web
framework, no numpy and no client of Kubernetes.
"""

from __future__ import annotations

from escher_k8s.answers import (
    Brake,
    Decision,
    Explanation,
    Gang,
    Holder,
    InForce,
    Member,
    Missed,
    NodeGroup,
    NodeState,
    Owner,
    Place,
    Policy,
    PolicyType,
    Quota,
    Refusal,
    Remedy,
    Resource,
    SafetySwitches,
    Supposition,
    Switches,
    Transaction,
)
from escher_k8s.client import AsyncEscher, Escher
from escher_k8s.errors import (
    BeingDeleted,
    Conflict,
    Contradiction,
    EscherError,
    Invalid,
    NotAllowed,
    NotFound,
    NotInForce,
    OutsideDomain,
    Problem,
    QuotaExceeded,
    TooManyCalls,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unreached,
    VersionConflict,
)
from escher_k8s.management.asks import Ask
from escher_k8s.management.holding import NotHeld
from escher_k8s.management.operations import Claim, Release, SetResource
from escher_k8s.management.own_node import OwnNodeUnknown

__all__ = [
    "Ask",
    "AsyncEscher",
    "BeingDeleted",
    "Brake",
    "Claim",
    "Conflict",
    "Contradiction",
    "Decision",
    "Escher",
    "EscherError",
    "Explanation",
    "Gang",
    "Holder",
    "InForce",
    "Invalid",
    "Member",
    "Missed",
    "NodeGroup",
    "NodeState",
    "NotAllowed",
    "NotFound",
    "NotHeld",
    "NotInForce",
    "OutsideDomain",
    "OwnNodeUnknown",
    "Owner",
    "Place",
    "Policy",
    "PolicyType",
    "Problem",
    "Quota",
    "QuotaExceeded",
    "Refusal",
    "Release",
    "Remedy",
    "Resource",
    "SafetySwitches",
    "SetResource",
    "Supposition",
    "Switches",
    "TooManyCalls",
    "Transaction",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Unreached",
    "VersionConflict",
]
