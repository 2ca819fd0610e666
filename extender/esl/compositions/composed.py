"""Compositions of policies: all of several at once (AND), or one of several, the best first (OR).

    both = AllOf("pairs-apart", together, balance)        # a,b: the requirements merged into one
    either = AnyOf("near-or-far", near, anywhere)         # a|b: a soft list of their requirements

The parts are independent: each receives every event and has its own resources. A part may be a composition, but not one
that launches pods itself: instead of `a AND (b OR c)`, write `(a AND b) OR (a AND c)`.

If no node can ever take a task, a notice says so at once, with the numbers. It is sent once per change from possible to
impossible, and only after all nodes are known (`begin`). The proof uses the nodes' total amounts, their labels, and the
only nodes that could satisfy a policy (`possible_nodes`). A node that is full, cordoned, or not yet furnished by a
policy proves nothing. A new node may change the answer.

Guaranteed: what each part guarantees. On node loss: as each part says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from extender.core.names import in_domain
from extender.esl.base import Effect, Event, Notice, PodRequirement
from extender.esl.policies.soft import Soft
from extender.esl.runtime.launching import LaunchingEsl, earliest
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import CPU, NodeName
from extender.kube.quantities import Vector


class _Composed(PolicyEsl):
    parts: tuple[PolicyEsl, ...] = ()
    _all_known = False

    def compose(self, parts: Sequence[PolicyEsl]) -> None:
        """It is made of these parts. Raises ValueError if they cannot form a composition."""
        self.parts = tuple(parts)
        self._told: set[str] = set()
        if not parts:
            raise ValueError(f"composition {self.name!r} has no parts; name the policies that it is made of")
        names = [policy.name for policy in self.policies()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two policies have the name {twice[0]!r}, and their resources would collide; rename one")
        if launching := [part.name for part in parts if isinstance(part, LaunchingEsl)]:
            raise ValueError(f"policy {launching[0]!r} launches pods itself and cannot be a part")
        for part in parts:
            for what in ("namespace", "domain", "scheduler"):
                mine, theirs = getattr(self, what), getattr(part, what)
                if mine != theirs:
                    raise ValueError(f"policy {part.name!r} has {what} {theirs!r}, and {self.name!r} has {mine!r}")

    def policies(self) -> list[PolicyEsl]:
        """Itself, its parts, and their parts."""
        parts = [each for part in self.parts for each in (part.policies() if isinstance(part, _Composed) else [part])]
        return [self, *parts]

    def begin(self, there: Iterable[Event], now: float) -> list[Effect]:
        known = list(there)
        self._all_known = True
        effects = [effect for part in self.parts for effect in part.begin(known, now)]
        return [*effects, *super().begin(known, now), *self._tell()]

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = [effect for part in self.parts for effect in part.handle(event, now)]
        return [*effects, *super().handle(event, now), *self._tell()]

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        requirement, effects = super().ask(task, now)
        return requirement, [*effects, *self._tell()]

    def release(self, task: str, now: float) -> list[Effect]:
        effects = super().release(task, now)
        return [*effects, *(effect for part in self.parts for effect in part.release(task, now)), *self._tell()]

    def next_deadline(self) -> float | None:
        due = [super().next_deadline(), *(part.next_deadline() for part in self.parts)]
        return earliest(time for time in due if time is not None)

    def said_of_nodes(self, task: Task) -> Mapping[str, Collection[NodeName]]:
        """By name of the policy, the only nodes on which it could ever give what is asked."""
        raise NotImplementedError

    def possible_nodes(self, task: Task) -> Collection[NodeName] | None:
        said = self.said_of_nodes(task)
        return set(self.view.nodes).intersection(*said.values()) if said else None

    def why_never(self, task: Task) -> str:
        """Why no existing node could ever take the task, with numbers; empty: not proven."""
        nodes = self.view.nodes
        able: dict[str, Collection[NodeName]] = {}
        for key, units in task.needs.items():
            if not in_domain(key, self.domain):
                amount = f"{units / 1000:g}" if key == CPU else str(units)
                able[f"{key} {amount}"] = self.view.eligible({key: units}, {})
        if task.node_labels:
            said = ",".join(f"{key}={value}" for key, value in sorted(task.node_labels.items()))
            able[f"labels {said}"] = self.view.eligible({}, task.node_labels)
        able |= self.said_of_nodes(task)
        if not nodes or set(nodes).intersection(*able.values()):
            return ""
        counted = "; ".join(f"{what}: {len(set(where) & nodes.keys())}" for what, where in able.items())
        return f"no node can ever take task {task.name!r}. Of {len(nodes)} nodes: {counted}; none meets all"

    def _tell(self) -> list[Effect]:
        if not self._all_known:
            return []
        placed = {pod.labels[self.label] for pod in self.view.alive(self.label) if pod.node is not None}
        waiting = [task for name, task in self.tasks.items() if name not in placed]
        whys = {task.name: why for task in waiting if (why := self.why_never(task))}
        new = sorted(whys.keys() - self._told)
        self._told = set(whys)
        return [Notice(self.name, name, whys[name]) for name in new]


class AllOf(_Composed):
    """AND: a task's pod has to meet the requirement of each part."""

    def __init__(self, name: str, *parts: PolicyEsl, **more: str) -> None:
        """Raises ValueError if two have one name, or differ in namespace, domain or scheduler."""
        super().__init__(name, **more)
        self.compose(parts)

    def requires(self, task: Task) -> Vector:
        return {}

    def capacities(self, now: float) -> Wanted:
        return {}

    def would_require(self, task: Task) -> PodRequirement:
        requirement = super().would_require(task)
        for part in self.parts:
            requirement &= part.would_require(task)
        return requirement

    def ask(self, task: Task, now: float) -> tuple[PodRequirement, list[Effect]]:
        _, effects = super().ask(task, now)
        requirement = self.requirement(task)
        for part in self.parts:
            said, more = part.ask(task, now)
            requirement &= said
            effects += more
        return requirement, effects

    def said_of_nodes(self, task: Task) -> Mapping[str, Collection[NodeName]]:
        said = {f"policy {part.name}": part.possible_nodes(task) for part in self.parts}
        return {who: where for who, where in said.items() if where is not None}


class AnyOf(_Composed, Soft):
    """OR: tries a task under one part after the other; a part knows only tasks tried under it."""

    def __init__(self, name: str, *parts: PolicyEsl, wait: float = 5.0, **more: str) -> None:
        """Raises as `AllOf` and `Soft`."""
        Soft.__init__(self, name, lambda task: [part.would_require(task) for part in self.parts], wait=wait, **more)
        self.compose(parts)

    def choose(self, task: Task, index: int, now: float) -> tuple[PodRequirement, list[Effect]]:
        return self.parts[index].ask(task, now)

    def give_up(self, task: Task, index: int, now: float) -> list[Effect]:
        return self.parts[index].release(task.name, now)

    def said_of_nodes(self, task: Task) -> Mapping[str, Collection[NodeName]]:
        said = [part.possible_nodes(task) for part in self.parts]
        where = [nodes for nodes in said if nodes is not None]
        names = " or ".join(part.name for part in self.parts)
        return {f"policy {names}": set().union(*where)} if len(where) == len(said) else {}
