"""Calls: every call of the management API, written once (see `calling`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from escher_k8s.answers import (
    Explanation,
    Gang,
    NodeState,
    Owner,
    Page,
    Policy,
    PolicyAnswer,
    PolicyType,
    Quota,
    Resource,
    SafetySwitches,
    Supposition,
    Transaction,
)
from escher_k8s.management.asking import Asking
from escher_k8s.management.asks import Ask, of_answer
from escher_k8s.management.calling import Call, Request, Steps
from escher_k8s.management.operations import Detection, Mode, NodeSpec, Operation, SetResource
from escher_k8s.management.own_node import NAMESPACE_FILE, node_of, own_pod

T = TypeVar("T")


class Calls(Asking):
    """The management API. `namespace`: the default of every call; `node`: the caller's own."""

    namespace: str
    node: str | None

    # -- ephemeral resources

    @Call
    def set_resource(
        self,
        name: str,
        capacity: int,
        *,
        node_spec: NodeSpec = None,
        num_nodes: int | None = None,
        ttl_seconds: float | None = None,
        owner: Owner | None = None,
        shared: bool = False,
        export_to: Sequence[str] | None = None,
        if_version: str | None = None,
        if_absent: bool = False,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Steps[Resource]:
        """Each chosen node has `capacity` units; a repeated call renews them and moves nothing.

        `capacity`: whole units, absolute; 0 removes it. `node_spec`: a node's name; resources, for the nodes that have
        as much available (`{}`: all); `{"labels": {...}}`; None: that of `owner`, or the caller's own. `num_nodes`: the
        most nodes that are chosen. `ttl_seconds`: it is removed after this time, unless it is set again. `owner`: the
        pod whose end ends it. `shared`: pods of every namespace may ask for it, by `escher.dev/<name>`. `export_to`:
        other namespaces whose pods may ask for it; None: the same as before, `[]`: none. `if_version`: only if it is at
        this version. `if_absent`: only if there is none of that name.

        Raises Invalid; VersionConflict; BeingDeleted; OwnNodeUnknown; Unavailable; Unreachable.
        """
        wanted = SetResource(name, capacity, node_spec, num_nodes, ttl_seconds, owner, shared, export_to=export_to)
        wanted = yield from self._placed(wanted)
        headers = {"If-Match": if_version, "If-None-Match": "*" if if_absent else None}
        request = Request("PUT", self._resource(name, namespace), _dry(dry_run), headers, wanted.body())
        return msgspec.json.decode((yield request), type=Resource)

    @Call
    def get_resource(self, name: str, *, shared: bool = False, namespace: str | None = None) -> Steps[Resource]:
        """One ephemeral resource, with its nodes and its version. Raises NotFound."""
        request = Request("GET", self._resource(name, namespace), _shared(shared))
        return msgspec.json.decode((yield request), type=Resource)

    @Call
    def list_resources(self, *, namespace: str | None = None) -> Steps[list[Resource]]:
        """The ephemeral resources of the namespace, with shared ones that it created; all pages."""
        return (yield from _every(("namespaces", namespace or self.namespace, "resources"), Page[Resource]))

    @Call
    def delete_resource(
        self,
        name: str,
        *,
        shared: bool = False,
        if_version: str | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Steps[Resource | None]:
        """Deletes the resource from all nodes; holders keep their units. Idempotent.

        Returns None, or the resource if `finalizers` still hold it. Raises VersionConflict.
        """
        params = {**_dry(dry_run), **_shared(shared)}
        answer = yield Request("DELETE", self._resource(name, namespace), params, {"If-Match": if_version})
        return msgspec.json.decode(answer, type=Resource) if answer else None

    # -- cluster state and transactions

    @Call
    def get_cluster_state(
        self, *, namespace: str | None = None, node: str | None = None, resource: str | None = None
    ) -> Steps[list[NodeState]]:
        """Each node's capacity, what is available, and the holders; all pages.

        `namespace`: only its ephemeral resources, and holders in it; None: all. `node`, `resource` (as pods spell it):
        only that one.
        """
        asked = {"namespace": namespace, "node": node, "resource": resource}
        return (yield from _every(("cluster-state",), Page[NodeState], asked))

    get_cluster_status = get_cluster_state
    """ESCHER's other name for it."""

    @Call
    def transact(
        self,
        operations: Sequence[Operation],
        *,
        mode: Mode = "all-or-nothing",
        detection: Detection = "resource-fit",
        read: Mapping[str, int] | None = None,
        dry_run: bool = False,
    ) -> Steps[Transaction]:
        """The operations are committed as one, or (`incremental`) as far as they do not conflict.

        A conflict is too little that is free now; or with `sequence-number` any claim on a node since it was read:
        `read` has the `sequence` of each, from the cluster state. Raises Conflict if nothing was committed; Invalid,
        with a `field` such as `operations[0].units`.
        """
        placed: list[Operation] = []
        for each in operations:
            placed.append((yield from self._placed(each)) if isinstance(each, SetResource) else each)
        body = {
            "operations": [each.spelt(self.namespace) for each in placed],
            "mode": mode,
            "detection": detection,
            "read": None if read is None else dict(read),
        }
        return msgspec.json.decode(
            (yield Request("POST", ("transactions",), _dry(dry_run), {}, body)), type=Transaction
        )

    # -- policies

    @Call
    def list_policy_types(self) -> Steps[list[PolicyType]]:
        """Every type of policy, with the JSON schema of its parameters and an example."""
        return (yield from _every(("policy-types",), Page[PolicyType]))

    @Call
    def list_policies(self, *, namespace: str | None = None) -> Steps[list[Policy]]:
        """The policies of the namespace; all pages."""
        return (yield from _every(("namespaces", namespace or self.namespace, "policies"), Page[Policy]))

    @Call
    def get_policy(self, name: str, *, namespace: str | None = None) -> Steps[Policy]:
        """One policy: what its author wrote, what of it is in force, and why. Raises NotFound."""
        return msgspec.json.decode((yield Request("GET", self._policy(name, namespace))), type=Policy)

    @Call
    def put_policy(
        self,
        name: str,
        type: str,
        parameters: Mapping[str, Any] | None = None,
        selector: Mapping[str, Any] | None = None,
        *,
        if_version: str | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Steps[Policy]:
        """The policy has exactly this content, and is in force for the next decision.

        `type`, `parameters`: see `list_policy_types`. `selector`: which pods of the namespace it matches, besides the
        pods that name it: `{"match_labels": {...}, "match_expressions": [...]}`; `{}`: all, None: none. A bad policy is
        refused, and its former content stays in force. `if_version`: only if it is at this version.

        Raises Invalid, with a `field` such as `parameters.max_skew`; VersionConflict; BeingDeleted; NotFound, of the
        namespace; Unavailable; Unreachable.
        """
        headers = {"If-Match": if_version}
        body = _said(type, parameters, selector)
        request = Request("PUT", self._policy(name, namespace), _dry(dry_run), headers, body)
        return msgspec.json.decode((yield request), type=Policy)

    @Call
    def patch_policy(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        if_version: str | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Steps[Policy]:
        """Changes only the given fields: `{"parameters": {"tasks": 8}}`. None removes one.

        Raises as `put_policy`, and NotFound if there is no such policy.
        """
        headers = {"If-Match": if_version}
        request = Request("PATCH", self._policy(name, namespace), _dry(dry_run), headers, changes)
        return msgspec.json.decode((yield request), type=Policy)

    @Call
    def delete_policy(
        self, name: str, *, if_version: str | None = None, dry_run: bool = False, namespace: str | None = None
    ) -> Steps[Policy | None]:
        """The policy is in force no more; pods stay where they are. A missing policy is no error.

        Returns None, or the policy if `finalizers` still hold it. Raises VersionConflict.
        """
        request = Request("DELETE", self._policy(name, namespace), _dry(dry_run), {"If-Match": if_version})
        answer = yield request
        return msgspec.json.decode(answer, type=Policy) if answer else None

    @Call
    def validate_policy(
        self,
        type: str,
        parameters: Mapping[str, Any] | None = None,
        selector: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
    ) -> Steps[Policy]:
        """The status of such a policy, which is not stored. `name`: its name. Raises Invalid."""
        path = ("namespaces", namespace or self.namespace, "policies:validate")
        named = {} if name is None else {"name": name}
        request = Request("POST", path, body={**_said(type, parameters, selector), **named})
        return msgspec.json.decode((yield request), type=Policy)

    @Call
    def ask_policy(
        self,
        name: str,
        task: str,
        group: str = "",
        *,
        needs: Mapping[str, str | int | float] | None = None,
        node_labels: Mapping[str, str] | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Steps[Ask]:
        """What the task's pod has to carry so that the policy applies to it. Idempotent.

        `task`, `group`: labels; for `shares` the group is the user. `needs`, `node_labels`: what the pod asks for
        besides, and its node selector. Raises NotFound, NotInForce, Invalid, Unavailable.
        """
        said = {"name": task, "group": group, "needs": dict(needs) if needs else None, "node_labels": node_labels or {}}
        path = self._policy(f"{name}:ask", namespace)
        answer = yield Request("POST", path, _dry(dry_run), body={"task": said})
        return of_answer(msgspec.json.decode(answer, type=PolicyAnswer))

    # -- gangs, and reasons for waiting

    @Call
    def list_gangs(self, *, namespace: str | None = None) -> Steps[list[Gang]]:
        """The gangs of the namespace; all pages."""
        return (yield from _every(("namespaces", namespace or self.namespace, "gangs"), Page[Gang]))

    @Call
    def get_gang(self, name: str, *, namespace: str | None = None) -> Steps[Gang]:
        """One gang: phase, quorum, members, nodes. A Job's is `job.<its name>`. Raises NotFound."""
        path = ("namespaces", namespace or self.namespace, "gangs", name)
        return msgspec.json.decode((yield Request("GET", path)), type=Gang)

    @Call
    def explain_gang(self, name: str, *, namespace: str | None = None) -> Steps[Explanation]:
        """Why the gang waits, with numbers, and what would help. Raises NotFound."""
        path = ("namespaces", namespace or self.namespace, "gangs", name, "explain")
        return msgspec.json.decode((yield Request("GET", path)), type=Explanation)

    @Call
    def explain_pod(self, name: str, *, namespace: str | None = None) -> Steps[Explanation]:
        """Why the pod waits, with numbers, and what would help. Raises NotFound."""
        return (yield from _explain_pod(namespace or self.namespace, name))

    @Call
    def what_if(
        self, question: Mapping[str, Any] | None = None, *, changes: Sequence[Mapping[str, Any]] = ()
    ) -> Steps[Supposition]:
        """The placements after `changes` of the cluster, which are not made.

        Raises NotFound, Invalid. Both arguments are as in the API:

            what_if({"kind": "pods", "namespace": "a", "name": "train", "count": 64, "gang": True, "each": {"cpu": 4}})
            what_if(changes=[{"op": "drain", "node": "node-3"}])
        """
        body: dict[str, Any] = {"changes": list(changes), "question": question}
        return msgspec.json.decode((yield Request("POST", ("what-if",), body=body)), type=Supposition)

    @Call
    def get_quota(self, *, namespace: str | None = None) -> Steps[Quota]:
        """What the namespace has, may have and may touch."""
        path = ("namespaces", namespace or self.namespace, "quota")
        return msgspec.json.decode((yield Request("GET", path)), type=Quota)

    @Call
    def get_safety_switches(self) -> Steps[SafetySwitches]:
        """The safety switch: what the service may do to pods now, in total and by namespace."""
        return msgspec.json.decode((yield Request("GET", ("safety-switches",))), type=SafetySwitches)

    get_brake = get_safety_switches
    """The old name, until version 0.4."""

    # -- the caller's own node

    def _own_node(self) -> Steps[str | None]:
        """None: the caller runs in no pod. Raises OwnNodeUnknown."""
        if self.node is not None or (pod := own_pod(os.environ, NAMESPACE_FILE)) is None:
            return self.node
        if isinstance(pod, str):
            return pod
        self.node = yield from node_of(pod, _explain_pod(pod.namespace, pod.name))
        return self.node

    def _placed(self, wanted: SetResource) -> Steps[SetResource]:
        """`wanted`, with the caller's own node if neither `node_spec` nor `owner` is given."""
        if wanted.node_spec is not None or wanted.owner is not None:
            return wanted
        return replace(wanted, node_spec=(yield from self._own_node()))

    # -- paths

    def _resource(self, name: str, namespace: str | None) -> tuple[str, ...]:
        return ("namespaces", namespace or self.namespace, "resources", name)

    def _policy(self, name: str, namespace: str | None) -> tuple[str, ...]:
        return ("namespaces", namespace or self.namespace, "policies", name)


def _explain_pod(namespace: str, name: str) -> Steps[Explanation]:
    path = ("namespaces", namespace, "pods", name, "explain")
    return msgspec.json.decode((yield Request("GET", path)), type=Explanation)


def _every(path: Sequence[str], page: type[Page[T]], params: Mapping[str, str | None] | None = None) -> Steps[list[T]]:
    items: list[T] = []
    following: str | None = None
    while True:
        answer = yield Request("GET", path, {**(params or {}), "continue": following})
        part = msgspec.json.decode(answer, type=page)
        items += part.items
        following = part.following
        if following is None:
            return items


def _said(type: str, parameters: Mapping[str, Any] | None, selector: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "type": type,
        "parameters": dict(parameters or {}),
        "selector": None if selector is None else dict(selector),
    }


def _dry(dry_run: bool) -> dict[str, str | None]:
    return {"dryRun": "All" if dry_run else None}


def _shared(shared: bool) -> dict[str, str | None]:
    return {"shared": "true" if shared else None}
