"""Mutations: applies the MutatingAdmissionPolicies in force to a new pod.

A policy is in force if a binding names it. Policies run in the order of their names, and each sees the changes of those
before it. `policy_rules` validates policies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kubesim import kinds
from kubesim.apiserver import cel
from kubesim.apiserver.machinery import patches
from kubesim.apiserver.machinery.applying import NotApplied, applied
from kubesim.apiserver.machinery.failures import Failure, server_error
from kubesim.apiserver.machinery.store import Store
from kubesim.apiserver.representation import shapes
from kubesim.apiserver.schemas.policy_expressions import CONDITION, ready
from kubesim.apiserver.schemas.policy_rules import APPLY, MEMBERS
from kubesim.kinds import Json

_NOT_YET = ("uid", "creationTimestamp", "generation")
"""Metadata that a pod gets only after admission."""
_PLACE = ("name", "generateName", "namespace")


class _Broken(Exception):
    """The policy failed on this pod."""


@dataclass
class _Failed:
    """Messages of the failed policies whose failurePolicy is Fail."""

    messages: list[str] = field(default_factory=list)

    def note(self, policy: Json, binding: Json, why: object) -> None:
        if policy["spec"]["failurePolicy"] == "Fail":
            of_policy, of_binding = policy["metadata"]["name"], binding["metadata"]["name"]
            self.messages.append(f"policy '{of_policy}' with binding '{of_binding}' denied request: {why}")


def of_pod(pod: Json, store: Store, complete: Callable[[Json], Json]) -> Json:
    """The pod after all policies; the identical pod if they change nothing. Raises Failure.

    `complete` adds the defaults that every decoding applies.
    """
    bindings = store.list(kinds.MUTATING_POLICY_BINDING)
    if not bindings:
        return pod
    given = pod["metadata"]
    seen = {**pod, "metadata": {key: value for key, value in given.items() if key not in _NOT_YET}}
    result, failed = seen, _Failed()
    for policy in store.list(kinds.MUTATING_POLICY):
        for binding in bindings:
            if binding["spec"]["policyName"] == policy["metadata"]["name"]:
                result = _invoked(policy, binding, result, complete, failed)
    if failed.messages:
        details: Json = {"name": given.get("name", ""), "kind": kinds.POD.plural}
        details["causes"] = [{"message": each} for each in failed.messages]
        raise Failure(403, "Invalid", failed.messages[0], details)
    if result == seen:
        return pod
    of_the_server = {key: given[key] for key in _NOT_YET if key in given}
    return {**result, "metadata": {**result["metadata"], **of_the_server}}


def _invoked(policy: Json, binding: Json, pod: Json, complete: Callable[[Json], Json], failed: _Failed) -> Json:
    spec = policy["spec"]
    try:
        if not _matches(spec, pod):
            return pod
    except _Broken as error:
        failed.note(policy, binding, error)
        return pod
    for mutation in spec["mutations"]:
        try:
            pod = _mutated(mutation, pod, complete)
        except _Broken as error:
            # The following mutations still run.
            failed.note(policy, binding, error)
    return pod


def _matches(spec: Json, pod: Json) -> bool:
    """False if any condition is false, even if others fail. Raises _Broken."""
    broken: list[str] = []
    for condition in spec.get("matchConditions") or ():
        try:
            if not ready(condition["expression"], CONDITION)({"object": pod}):
                return False
        except cel.Failed as error:
            broken.append(f"expression '{condition['expression']}' resulted in error: {error}")
    if broken:
        raise _Broken(broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]")
    return True


def _mutated(mutation: Json, pod: Json, complete: Callable[[Json], Json]) -> Json:
    """Raises _Broken; Failure if a JSON patch makes no valid pod, whatever the failurePolicy."""
    of_type = mutation["patchType"]
    member, wanted = MEMBERS[of_type]
    text = mutation[member]["expression"]
    try:
        said = ready(text, wanted)({"object": pod})
    except cel.Failed as error:
        raise _Broken(f"expression '{text}' resulted in error: {error}") from None
    unknown: list[str] = []
    try:
        new = applied(pod, said) if of_type == APPLY else patches.operated(pod, said)
        new = complete(shapes.known(kinds.POD, new, unknown))
    except NotApplied as error:
        raise _Broken(f"error applying patch: {error}") from None
    except patches.Untrue:
        return pod
    except patches.Impossible:
        raise _Broken("JSONPath: an operation cannot be carried out on this object") from None
    except Failure as failure:
        if of_type == APPLY:
            raise _Broken(failure.message) from None
        raise server_error(failure.message) from None
    if unknown:
        raise server_error(f'strict decoding error: unknown field "{unknown[0]}"')
    for key in _PLACE:
        if (new.get("metadata") or {}).get(key) != pod["metadata"].get(key):
            raise _Broken(f"a policy that changes metadata.{key} is not in the embedded cluster")
    return new
