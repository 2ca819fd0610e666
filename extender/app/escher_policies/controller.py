"""EscherPolicy controller: policies that people create, change and remove at run time.

What is in force of each policy goes to `PolicyMatching` as soon as it is known. The status says whether the policy is
in force, for how many pods, and which policies it names that do not exist yet. A policy that leads back to itself, by
parents or by preferences, is refused: the policy that closes the circle. A policy beyond the namespace's quota is
refused too; policies in force stay so. A refused policy comes into force when the circle opens, or another is gone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from extender.app.contracts import errors
from extender.app.contracts.errors import Invalid, NotFound
from extender.app.contracts.kind import Declared, Identity, NotInForce, ObjectStore, Replacement, Standing, declared
from extender.app.contracts.policy_state import PolicyReceiver, PolicyState
from extender.app.contracts.ports import Clock
from extender.app.escher_policies.quota import QUOTA_EXCEEDED, PolicyQuota
from extender.app.escher_policies.status import Object, PolicyStatus
from extender.app.objects.effective import Effective
from extender.app.objects.known import Entry, Known
from extender.app.objects.object_controller import ObjectController
from extender.app.objects.write_ids import WriteIds
from extender.core.policies.policy_types import FairShare, PolicyInForce, PolicySpec, Soft, names_of
from extender.core.tenancy.isolation import Isolation

KIND = "EscherPolicy"
CIRCLE = "Circle"
_SHOWN = 8
"""Policies of a circle that its message names."""

Understand = Callable[[PolicySpec], PolicyInForce]
"""Returns what is in force of a policy with this spec. Raises ValueError for its author."""

Try = Callable[[Identity, PolicyInForce], object]
"""Carries the policy out as far as possible without a cluster. Raises ValueError for its author.

The message begins with the parameter at fault, if there is one."""


class EscherPolicies:
    """Implements `api.PolicyCalls`. `pods`: how many pods a policy matches.

    `installed`: whether the cluster has the kind. `trouble`: what hinders a policy that is in force, in words. `chance`
    gives numbers from 0 to 1."""

    def __init__(
        self,
        store: ObjectStore[Object, Replacement[PolicySpec], Standing[PolicySpec]],
        clock: Clock,
        understand: Understand,
        receiver: PolicyReceiver,
        pods: Callable[[Identity, PolicyInForce], int],
        *,
        isolation: Isolation | None = None,
        installed: Callable[[], bool] = lambda: True,
        attempt: Try = lambda name, policy: None,
        trouble: Callable[[Identity], Sequence[str]] = lambda name: (),
        marks: WriteIds | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._understand = understand
        self.receiver = receiver
        self._installed = installed
        self._attempt = attempt
        self._trouble = trouble
        self._named_by: dict[Identity, dict[Identity, None]] = {}
        self.quota = PolicyQuota(isolation or Isolation())
        self._refused: dict[Identity, str] = {}
        """Policies that may come into force without a change of theirs, and why they are not."""
        self._standings: PolicyStatus | None = None

        def reports(in_force: Effective[Object, PolicyInForce]) -> PolicyStatus:
            self._standings = PolicyStatus(in_force, pods)
            return self._standings

        kind = declared(KIND, self._reconcile)
        self.tending = ObjectController(kind, store, clock, marks=marks, reports=reports, chance=chance)
        self.tending.in_force.followers.append(self._follow)
        self.sink = _WellFirst(self.tending.known)
        """The sink of the kind's watch."""

    # -- what is in force ------------------------------------------------------------------------------------------

    def _reconcile(self, item: Object, former: PolicyInForce | None) -> PolicyInForce | NotInForce:
        assert item.spec is not None, "an object without a spec has a problem"
        try:
            policy = self._understand(item.spec)
        except ValueError as error:
            return NotInForce("Invalid", f"spec.{error}")
        try:
            self._attempt(item.name, policy)
        except ValueError as error:
            field, colon, _ = str(error).partition(":")
            is_named = bool(colon) and field.startswith("parameters.")
            return NotInForce("Invalid", str(error), field=field if is_named else "name")
        if circle := self._circle(item.name, policy):
            parameter = "parent" if isinstance(policy.parameters, FairShare) else "preferences"
            field = f"parameters.{parameter}"
            way = circle if len(circle) <= _SHOWN else [*circle[: _SHOWN - 2], "...", *circle[-2:]]
            return NotInForce(CIRCLE, f"{field}: {' -> '.join(way)} is a cycle; name another", field=field)
        # The status of a policy that was in force before a restart says so: the quota does not refuse it.
        over = self.quota.over(item.name) if former is None and item.in_force is None else None
        return policy if over is None else NotInForce(QUOTA_EXCEEDED, str(over), field="name")

    def _circle(self, name: Identity, policy: PolicyInForce) -> list[str]:
        """Returns the way by which the policy would lead back to itself; empty if it would not."""
        ways = [[name.name, each] for each in _led_to(policy)]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            if way[-1] == name.name:
                return way
            if way[-1] not in seen:
                seen.add(way[-1])
                there = self.tending.in_force.get(Identity(name.namespace, way[-1]))
                ways += [[*way, each] for each in (_led_to(there) if there is not None else ())]
        return []

    def _follow(self, name: Identity, before: PolicyInForce | None, after: PolicyInForce | None) -> Iterable[Identity]:
        for each in _named_in(name, before):
            names = self._named_by[each]
            names.pop(name, None)
            if not names:
                del self._named_by[each]
        for each in _named_in(name, after):
            self._named_by.setdefault(each, {})[name] = None
        if after is None and before is not None:
            self.receiver.drop(name)
        elif after is not None and after != before:
            self.receiver.put(name, after)
        why_not = self.tending.in_force.why_not(name)
        self.quota.count(name, in_force=after is not None)
        if why_not is not None and why_not.reason in (CIRCLE, QUOTA_EXCEEDED):
            self._refused[name] = why_not.reason
        else:
            self._refused.pop(name, None)
        # Policies that name this one may have another status now. Policies that it refused may come into force.
        return [*self._named_by.get(name, ()), *self._opened(name)]

    def _opened(self, changed: Identity) -> Iterator[Identity]:
        return self._let_in([each for each in self._refused if each != changed and each.namespace == changed.namespace])

    def _let_in(self, names: Iterable[Identity]) -> Iterator[Identity]:
        """Puts those in force that may be now; yields them, and others that this changes."""
        for name in names:
            if self._refused.get(name) == QUOTA_EXCEEDED and self.quota.over(name) is not None:
                continue
            entry = self.tending.known.get(name)
            if name in self._refused and entry is not None and self.tending.in_force.refusal(entry.item) is None:
                yield name
                yield from self.tending.in_force.take(name, entry.item)

    def on_quota(self, namespace: str | None = None) -> None:
        """The namespace (None: any) may have room for more: puts waiting policies in force."""
        waiting = [each for each in self._refused if namespace is None or each.namespace == namespace]
        for name in list(self._let_in(waiting)):
            self.tending.known.notify(name)

    def waiting_for_quota(self, namespace: str) -> int:
        return sum(why == QUOTA_EXCEEDED and name.namespace == namespace for name, why in self._refused.items())

    # -- calls -----------------------------------------------------------------------------------------------------

    def list_policies(self, namespace: str) -> Sequence[PolicyState]:
        entries = [each for each in self.tending.known.entries() if each.item.name.namespace == namespace]
        return [self._state(each) for each in entries]

    def get_policy(self, name: Identity) -> PolicyState:
        self._must_be_installed()
        entry = self.tending.known.get(name)
        if entry is None:
            raise NotFound("name", str(name), f"there is no policy {name}")
        return self._state(entry)

    def in_force(self, name: Identity) -> PolicyInForce:
        """Returns what is in force of it. Raises NotFound, `errors.NotInForce`."""
        policy = self.tending.in_force.get(name)
        if policy is None:
            state = self.get_policy(name)
            raise errors.NotInForce("name", str(name), f"policy {name} is not in force: {state.message}")
        return policy

    async def change_policy(
        self,
        name: Identity,
        becomes: Callable[[PolicySpec | None], PolicySpec],
        *,
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> PolicyState:
        self._must_be_installed()

        def becoming(before: PolicySpec | None) -> PolicySpec:
            spec = becomes(before)
            self.quota.let_through(name)
            return spec

        with self.quota.until_written(name):
            written = await self.tending.change(name, becoming, if_version=if_version, dry_run=dry_run)
        entry = self.tending.known.get(name)
        if not dry_run and entry is not None:
            return self._state(entry)
        item = written.after
        assert item is not None, "a change leaves an object"
        assert item.spec is not None, "what we write is understood"
        version = "" if written.before is None else item.resource_version if entry is None else entry.version
        return replace(self.judge_policy(name, item.spec), version=version)

    async def delete_policy(
        self, name: Identity, *, if_version: str | None = None, dry_run: bool = False
    ) -> PolicyState | None:
        self._must_be_installed()
        left = await self.tending.delete(name, if_version=if_version, dry_run=dry_run)
        return None if left is None else self._state(Entry(left, 0.0, left.resource_version))

    def judge_policy(self, name: Identity, spec: PolicySpec) -> PolicyState:
        decided = self._reconcile(Declared(name, spec), self.tending.in_force.get(name))
        if isinstance(decided, NotInForce) and decided.reason == QUOTA_EXCEEDED:
            self.quota.let_through(name)
        if isinstance(decided, NotInForce):
            raise Invalid(decided.field, spec, decided.message)
        return _stands(name, spec, self._judging().of(name, decided), decided)

    def _state(self, entry: Entry[Object]) -> PolicyState:
        item = entry.item
        if item.deleting:
            held = f"; finalizers: {', '.join(item.finalizers)}" if item.finalizers else ""
            gone: Standing[PolicySpec] = Standing(False, "BeingDeleted", f"it is being deleted{held}")
            state = _stands(item.name, item.spec, gone, None)
        else:
            in_force = self.tending.in_force.get(item.name)
            state = _stands(item.name, item.spec, self._judging().now(item), in_force)
        if trouble := self._trouble(item.name):
            state = replace(state, message="; ".join((state.message, *trouble)))
        return replace(state, version=entry.version, finalizers=item.finalizers if item.deleting else ())

    def _judging(self) -> PolicyStatus:
        assert self._standings is not None, "made with the tending"
        return self._standings

    def _must_be_installed(self) -> None:
        if not self._installed():
            said = f"this cluster has no kind {KIND}, or Escher may not read it"
            raise NotFound("kind", KIND, f"{said}: apply deploy/crds, and see the permissions in docs/operations.md")


class _WellFirst:
    """A `ports.Sink` that takes policies of a list first that were in force before.

    So after a restart the same policy of a circle is refused, and the same ones use the quota."""

    def __init__(self, known: Known[Object]) -> None:
        self.upsert, self.remove, self._known = known.upsert, known.remove, known

    def replace(self, objects: Iterable[Object]) -> Iterable[None]:
        return self._known.replace(sorted(objects, key=lambda item: (item.said_unready, item.in_force is None)))


def _stands(
    name: Identity, spec: PolicySpec | None, standing: Standing[PolicySpec], in_force: PolicyInForce | None
) -> PolicyState:
    return PolicyState(
        name=name,
        spec=spec,
        version="",
        ready=standing.ready,
        reason=standing.reason,
        message=standing.message,
        in_force=in_force,
        pods=standing.counts.get("pods"),
    )


def _led_to(policy: PolicyInForce) -> Iterable[str]:
    """Returns the policies that this one names as its parent or preferences."""
    if not isinstance(policy.parameters, FairShare | Soft):
        return ()
    return [each for names in names_of(policy.parameters).values() for each in names]


def _named_in(name: Identity, policy: PolicyInForce | None) -> Iterable[Identity]:
    named_there = {} if policy is None else names_of(policy.parameters)
    return dict.fromkeys(Identity(name.namespace, each) for names in named_there.values() for each in names)
