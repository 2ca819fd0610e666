"""Changes: reads and shows the JSON of the changes in `POST /v1/what-if`.

Translates both ways between the API and `app.contracts.simulation_changes`: an explanation shows what was tried as
changes that can be requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr

from extender.adapters import policy_models
from extender.adapters.http.models.models import LABEL_SCHEMA, Body, Capacity, Node
from extender.adapters.http.models.policy_bodies import PolicyBody, in_force_json, spec_of
from extender.adapters.http.problems import Problem, ProblemKind
from extender.app.contracts import simulation_changes as words
from extender.app.contracts.simulation_changes import MOST_NODES
from extender.core.gang_ask import LARGEST_GANG
from extender.core.names import EphemeralName, GangKey
from extender.kube.names import NodeName, require_label

Label = Annotated[
    StrictStr, AfterValidator(lambda value: require_label("it", value)), Field(json_schema_extra=LABEL_SCHEMA)
]
ObjectName = Annotated[StrictStr, Field(min_length=1, max_length=253)]
GangName = Annotated[StrictStr, Field(min_length=1, max_length=1000)]
"""May include kind, API group and UID of a controller, if only these identify the gang."""
LabelKey = Annotated[StrictStr, Field(min_length=1, max_length=317)]


class Drain(Body):
    """The node is cordoned, and its pods must move, except static pods and those of DaemonSets."""

    op: Literal["drain"]
    node: Node

    def value(self) -> words.SimulationChange:
        return words.Drained(NodeName(self.node))


class Uncordon(Body):
    """The node takes new pods."""

    op: Literal["uncordon"]
    node: Node

    def value(self) -> words.SimulationChange:
        return words.Uncordoned(NodeName(self.node))


class AddNodes(Body):
    """`count` more nodes like an existing one, empty and without its ephemeral resources."""

    op: Literal["add-nodes"]
    like: Node
    count: Annotated[StrictInt, Field(ge=1, le=MOST_NODES)] = 1
    own: Annotated[
        Sequence[LabelKey], Field(max_length=16, description="Labels with a different value on each of these nodes")
    ] = ()

    def value(self) -> words.SimulationChange:
        return words.Added(NodeName(self.like), self.count, tuple(self.own))


class EndPod(Body):
    """The pod is removed, and what it held is free."""

    op: Literal["end-pod"]
    namespace: Label
    pod: ObjectName

    def value(self) -> words.SimulationChange:
        return words.Ended(self.namespace, self.pod)


class SetResource(Body):
    """A node has this capacity of an ephemeral resource; 0: it has none."""

    op: Literal["set-resource"]
    namespace: Label
    name: Label
    shared: StrictBool = False
    node: Node
    capacity: Capacity

    def value(self) -> words.SimulationChange:
        return words.Offered(EphemeralName(self.namespace, self.name, self.shared), NodeName(self.node), self.capacity)


class ReleaseClaim(Body):
    """The units that a holder has claimed are free."""

    op: Literal["release"]
    namespace: Label
    holder: ObjectName

    def value(self) -> words.SimulationChange:
        return words.Released(self.namespace, self.holder)


class SetQuorum(Body):
    """The gang needs this many members."""

    op: Literal["set-quorum"]
    namespace: Label
    gang: GangName
    quorum: Annotated[StrictInt, Field(ge=1, le=LARGEST_GANG)]

    def value(self) -> words.SimulationChange:
        return words.QuorumSet(GangKey(self.namespace, self.gang), self.quorum)


class SetPolicy(Body):
    """An EscherPolicy has this spec; null: it does not exist."""

    op: Literal["set-policy"]
    namespace: Label
    name: Label
    policy: PolicyBody | None

    def value(self) -> words.SimulationChange:
        if self.policy is not None and self.policy.type in policy_models.ASKED:
            said = f"type {self.policy.type} is asked: its effect depends on future asks, and cannot be simulated"
            raise Problem(ProblemKind.INVALID, said, field="type")
        policy = None if self.policy is None else policy_models.in_force(spec_of(self.policy))
        return words.PolicySet(self.namespace, self.name, policy)


AnyChange = Annotated[
    Drain | Uncordon | AddNodes | EndPod | SetResource | ReleaseClaim | SetQuorum | SetPolicy, Field(discriminator="op")
]


def shown(change: words.SimulationChange) -> dict[str, Any]:
    """Returns the JSON change for this value."""
    match change:
        case words.Drained(node):
            return {"op": "drain", "node": node}
        case words.Uncordoned(node):
            return {"op": "uncordon", "node": node}
        case words.Added(like, count, own):
            return {"op": "add-nodes", "like": like, "count": count} | ({"own": list(own)} if own else {})
        case words.Ended(namespace, pod):
            return {"op": "end-pod", "namespace": namespace, "pod": pod}
        case words.Offered(EphemeralName(namespace, name, shared), node, capacity):
            where = {"namespace": namespace, "name": name} | ({"shared": True} if shared else {})
            return {"op": "set-resource", **where, "node": node, "capacity": capacity}
        case words.Released(namespace, holder):
            return {"op": "release", "namespace": namespace, "holder": holder}
        case words.QuorumSet(GangKey(namespace, name), quorum):
            return {"op": "set-quorum", "namespace": namespace, "gang": name, "quorum": quorum}
        case words.PolicySet(namespace, name, policy):
            said = None if policy is None else in_force_json(policy)
            return {"op": "set-policy", "namespace": namespace, "name": name, "policy": said}
