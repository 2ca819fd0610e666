"""A world: everything behind the management API on an API server in memory, wired as bootstrap wires the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from extender.adapters.forked import Forked
from extender.adapters.policy_models import Spelling, in_force
from extender.adapters.state_dump import written
from extender.app.admin.isolation_settings import IsolationInForce
from extender.app.admin.switch_settings import SwitchSettings
from extender.app.cache.cache import Rules
from extender.app.contracts.api import Management, ResourceState, SetResource
from extender.app.contracts.effects import AdvertiseCapacity, Effect, PodEnded
from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import NodeChoice
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.policy_events import GovernedByKeeper
from extender.app.cycle.scheduler import Scheduler
from extender.app.escher_policies.controller import EscherPolicies
from extender.app.escher_policies.esl_controller import EslController
from extender.app.escher_policies.esl_host import EslHost
from extender.app.escher_policies.status import GovernedPods
from extender.app.explain.explain import Explain
from extender.app.explain.queries import Queries
from extender.app.explain.remedy_search import RemedySearch
from extender.app.explain.simulate import WhatIf
from extender.app.explain.state_dump import Dumping
from extender.app.objects.conditions import Conditions
from extender.app.observability.decision_stream import DecisionStream
from extender.app.observability.flight_recorder import FlightRecorder
from extender.app.resources.intent_log import IntentLog
from extender.app.resources.node_status import WriteBack
from extender.app.resources.resync import Resync, drift_units
from extender.app.resources.set_resource import Resources
from extender.app.transactions.transactions import Transactions
from extender.core.cluster import Node, Pod
from extender.core.gangs.state.gang import WakePod
from extender.core.ledger import audit
from extender.core.names import EphemeralName
from extender.core.policies.policy_types import PolicyInForce
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import OWN, ApiServer, LoopClock
from tests.app.policy_store import PolicyStore
from tests.app.reopening import ExplainedTwice
from tests.builders import Amounts, node, pod
from tests.performing import Performing, at_once


class World(Performing):
    def __init__(
        self,
        *,
        latency: float = 0.0,
        chance: float = 1.0,
        rules: Rules | None = None,
        api: ApiServer | None = None,
        **write_back: Any,
    ) -> None:
        """`chance`: how long pauses are, between half (0) and the whole (1) of what they may be.

        `api`: one that is there already, whose news come here from now on.
        """
        self.api = api or ApiServer(LoopClock(), latency)
        self.clock = self.api.clock
        self.scheduler = Scheduler(self.clock, rules or Rules())
        self.write_back = WriteBack(self.scheduler.cache, self.api.writer, chance=lambda: chance, **write_back)
        self.resources = Resources(
            self.scheduler,
            self,
            self.api.store,
            self.write_back,
            require_finished=lambda names: self.intents.require_finished(names),
        )
        self.conditions = Conditions(
            self.resources.known, self.api.store, self.resources.placements, chance=lambda: chance
        )
        self.intents = IntentLog(
            self.api.intent_store, self.resources.taking_back, self.clock, namespace=OWN, chance=lambda: chance
        )
        self.reconcile = Resync(
            self.scheduler,
            self,
            self.resources,
            self.write_back,
            self.api.owners,
            is_being_written=self.intents.is_about,
            each_round=[self.conditions.look_again],
            chance=lambda: chance,
        )
        self.transactions = Transactions(self.scheduler, self, self.resources, self.intents, self.reconcile.nudge)
        self.asked = EslController(
            EslHost(self.scheduler.cache, self.resources, self._never),
            GovernedByKeeper(self.scheduler, self),
            lambda name: self.policies.in_force(name),
            listed=lambda: True,
        )
        self.policy_store = PolicyStore(self.api.next_version)
        self.policies = EscherPolicies(
            self.policy_store,
            self.clock,
            lambda spec: in_force(spec, Spelling.KUBERNETES),
            self.asked,
            GovernedPods(lambda name: self.scheduler.cache.policy_matching.of_namespace(name).values(), self.clock),
            isolation=self.scheduler.cache.isolation,
            chance=lambda: chance,
        )
        self.queries = Queries(self.scheduler.cache, self.resources.capacities)
        self.explain: Explain = ExplainedTwice(self.scheduler, self.resources)
        self.isolating = IsolationInForce(self.scheduler, self, self.resources.capacities, self.policies)
        self.api.nodes_watch.sink = self.isolating.nodes(Facts(Node, self.scheduler, self, FlightRecorder(self.clock)))
        self.api.resources_watch.sink = self.resources.known
        self.api.intents_watch.sink = self.intents.known
        self.woken: list[str] = []
        self.effects: list[Effect] = []

    async def _never(self) -> None:
        """Nobody runs here what would wait for the first lists."""

    @property
    def policy_matching(self) -> dict[Identity, PolicyInForce]:
        """The policies that the `Scheduler` heeds, of the namespaces that tests use."""
        heeded = self.scheduler.cache.policy_matching.in_force
        return {
            Identity(ns, name): policy for ns in ("default", "team", "other") for name, policy in heeded(ns).items()
        }

    def management(self) -> Management:
        """All of it as `/v1` calls it."""
        what_if = WhatIf(self.scheduler, forked := Forked())
        return Management(
            resources=self.resources,
            transactions=self.transactions,
            state=self.queries,
            gangs=self.queries,
            explain=RemedySearch(self.scheduler.cache, self.explain, forked, what_if.simulate_within),
            safety_switches=SwitchSettings(self.scheduler, self),
            quota=self.isolating,
            policies=self.policies,
            asks=self.asked,
            events=DecisionStream(self.clock),
            what_if=what_if,
            dump=Dumping(self.scheduler, self.resources.all, self.resources.capacities, forked, written),
        )

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case AdvertiseCapacity(name):
                    self.write_back.advertise(name)
                case PodEnded(ended):
                    self.reconcile.pod_ended(ended)
                case WakePod(waiting):
                    self.woken.append(waiting.name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        """Write-back, conditions and reconcile run while the block lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(each.run())
                for each in (self.write_back, self.conditions, self.reconcile, self.intents, self.policies.tending)
            ]
            yield self
            for task in tasks:
                task.cancel()

    def list(self) -> None:
        """It knows what the API server has now, as after its start."""
        assert self.api.nodes_watch.sink is not None
        at_once(self.api.nodes_watch.sink.replace([*self.api.nodes.values()]))
        self.resources.known.replace([*self.api.objects.values()])
        self.intents.known.replace([*self.api.intents.values()])

    # -- what happens in it --------------------------------------------------------------------------------------

    def add_nodes(self, *names: str, has: Amounts | None = None, **facts: Any) -> None:
        for name in names:
            self.api.put_node(node(name, has, **facts))
        if not self.api.nodes_watch.held:
            self.api.nodes_watch.deliver()

    async def set(
        self,
        name: str,
        capacity: int,
        where: NodeChoice | str | None = None,
        *,
        namespace: str = "team",
        shared: bool = False,
        **more: Any,
    ) -> ResourceState:
        """set_resource, as a caller would put it."""
        choice = NodeChoice(node=NodeName(where)) if isinstance(where, str) else where
        resource = EphemeralName(namespace, name, shared)
        return await self.resources.set_resource(SetResource(name=resource, capacity=capacity, choice=choice, **more))

    def start_pod(self, name: str, asks: Amounts, on: str | None = None) -> Pod:
        """A pod that is there; bound, if `on` says where."""
        made = pod(name, asks, namespace="team", node=None if on is None else NodeName(on))
        self.do(self.scheduler.observe(made))
        return made

    async def quiet(self, seconds: float = 10.0) -> None:
        """So much time has passed."""
        await asyncio.sleep(seconds)

    # -- what it looks like --------------------------------------------------------------------------------------

    def capacity(self, name: str, namespace: str = "team") -> dict[str, int]:
        """Units of the resource by node, in the ledger."""
        key = f"escher.dev/{namespace}.{name}"
        rows = self.scheduler.cache.ledger.rows
        return {name: row.ephemeral[ResourceKey(key)] for name, row in rows.items() if key in row.ephemeral}

    def free(self, name: str, on: str) -> int:
        return self.scheduler.cache.ledger.rows.free(NodeName(on), ResourceKey(f"escher.dev/team.{name}"))

    def stated(self, on: str) -> Mapping[str, int]:
        """What the node's status says of our domain; capacity and allocatable agree."""
        there = self.api.nodes[NodeName(on)]
        assert _ours(there.capacity) == _ours(there.allocatable)
        return {key.removeprefix("escher.dev/team."): units for key, units in _ours(there.capacity).items()}

    def audit(self) -> None:
        """The invariants hold; what is known of objects is what the ledger has."""
        assert audit.violations(self.scheduler.cache.ledger) == []
        capacities = self.resources.capacities
        assert list(capacities.quota.violations(capacities.recount())) == []
        assert capacities.repair() == 0
        assert len(self.resources.writing.locks) == 0

    def agree(self) -> None:
        """Store, ledger and node status say the same, and nothing is on its way."""
        self.audit()
        wanted: dict[ResourceKey, dict[NodeName, int]] = {}
        taken: dict[ResourceKey, tuple[float, str]] = {}
        for stored in self.api.objects.values():
            key, age = stored.name.key(), (stored.created, stored.name.namespace)
            if key in taken and taken[key] < age:
                continue
            taken[key], wanted[key] = age, stored.desired()
        assert self.resources.capacities.expected() == {key: nodes for key, nodes in wanted.items() if nodes}
        assert drift_units(self.scheduler.cache) == 0
        for name, there in self.api.nodes.items():
            expected = {key: nodes[name] for key, nodes in wanted.items() if name in nodes}
            assert _ours(there.capacity) == expected
            assert _ours(there.allocatable) == expected
        assert self.write_back.pending == 0


def _ours(said: Mapping[ResourceKey, int]) -> dict[ResourceKey, int]:
    return {key: units for key, units in said.items() if key.startswith("escher.dev/")}
