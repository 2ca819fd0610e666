"""Where the service is put together: the one place that names concrete adapters.

reflectors --facts--> Scheduler --effects--> scheduling, write-back, resources --> API server
                        ^
kube-scheduler --verbs--+
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry

from extender.adapters.forked import Forked
from extender.adapters.http.call_admission import entry_of
from extender.adapters.http.server.asgi import Service, create_app
from extender.adapters.http.server.bodies import BodyRoom
from extender.adapters.http.server.load_shedding import LoadShedding
from extender.adapters.http.server.readiness import Gaps, Standing
from extender.adapters.kubernetes.codecs import daemon_sets, intents, jobs, kinds, namespaces, pod_groups, policies
from extender.adapters.kubernetes.codecs.budgets import ApiDisruptions, budgets
from extender.adapters.kubernetes.codecs.resources import EphemeralResources
from extender.adapters.kubernetes.codecs.schema import VERSION
from extender.adapters.kubernetes.codecs.store import ApiIntentStore, ApiObjectStore, ApiResourceStore
from extender.adapters.kubernetes.reflectors.discovery import is_served
from extender.adapters.kubernetes.reflectors.optional_kind import OptionalKind
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.kubernetes.reflectors.safety_kinds import START_SECONDS, SafetyKinds
from extender.adapters.kubernetes.reflectors.unreadable_kinds import UnreadableKinds
from extender.adapters.kubernetes.writers.live_pods import ApiLivePods
from extender.adapters.kubernetes.writers.reviews import ApiReviews
from extender.adapters.kubernetes.writers.shared_writes import SharedWrites
from extender.adapters.kubernetes.writers.writers import (
    ApiBinder,
    ApiEvictor,
    ApiNodeStatusWriter,
    ApiNominator,
    ApiRecorder,
    ApiWaker,
)
from extender.adapters.memory import SMALL_COLLECTIONS, Memory, unlimited
from extender.adapters.metrics import Metrics
from extender.adapters.open_files import open_at_once
from extender.adapters.policy_models import Spelling, in_force
from extender.adapters.state_dump import written
from extender.app.admin.authorization import Authorization
from extender.app.admin.isolation_settings import IsolationInForce
from extender.app.admin.switch_settings import SwitchSettings
from extender.app.cache.cache import Rules
from extender.app.cache.staleness import Staleness
from extender.app.contracts.api import Management
from extender.app.contracts.effects import Effect
from extender.app.contracts.extender_api import Verbs
from extender.app.contracts.ports import EphemeralResource, ResourceStatus
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.policy_events import GovernedByKeeper
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.binding_cycle import BindingCycle
from extender.app.effects.dispatcher import Effects
from extender.app.effects.eviction_audit import logged
from extender.app.effects.permit_gates import PermitGates
from extender.app.effects.wake_cleanup import WakeCleanup
from extender.app.escher_policies.controller import EscherPolicies
from extender.app.escher_policies.esl_controller import EslController, tried
from extender.app.escher_policies.esl_host import EslHost
from extender.app.escher_policies.status import GovernedPods
from extender.app.explain.explain import Explain
from extender.app.explain.queries import Queries
from extender.app.explain.remedy_search import RemedySearch
from extender.app.explain.simulate import WhatIf
from extender.app.explain.state_dump import Dumping
from extender.app.objects.conditions import Conditions
from extender.app.objects.write_ids import WriteIds
from extender.app.observability import decision_log
from extender.app.observability.decision_stream import DecisionStream
from extender.app.observability.flight_recorder import FlightRecorder
from extender.app.observability.invariant_checker import InvariantChecker
from extender.app.resources.intent_log import IntentLog
from extender.app.resources.node_status import WriteBack
from extender.app.resources.resync import Resync
from extender.app.resources.set_resource import Resources
from extender.app.transactions.transactions import Transactions
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.daemons import DaemonSet
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.preemption.preemption_limits import Bounds
from extender.core.gangs.queue.backfill import BackfillLimits
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.names import DOMAIN
from extender.kube.client.fenced import Warm
from extender.kube.client.requests import Requests
from extender.registry import policies as registered
from extender.runtime import MACHINE, Runtime
from extender.settings.settings import Settings, switches_in
from extender.settings.settings_file import SettingsFile

if TYPE_CHECKING:
    # It imports OpenTelemetry, which need not be installed.
    from extender.adapters.tracing.tracing import Tracing

_log = structlog.get_logger(__name__)

_WARM_CONNECTIONS = 64
_DUMPS_WITHIN = 50.0


Cluster = Warm
"""The part of a connection to a cluster that the application needs."""


def authority(connection: Requests, settings: Settings) -> Authorization | None:
    """The authorization of the management API's callers; None if they may do everything."""
    if settings.authorization == "none":
        return None
    reviews = ApiReviews(connection, settings.token_audiences)
    return Authorization(reviews, asyncio.get_running_loop().time, settings.authorization_cache_seconds)


class Application:
    """Everything behind the HTTP server, on one connection to a cluster. `run` keeps it going."""

    def __init__(
        self,
        connection: Cluster,
        settings: Settings,
        world: Runtime = MACHINE,
        *,
        reviews: Requests | None = None,
        open_files: int | None = None,
        memory: Callable[[], Memory | None] = unlimited,
        tracing: Tracing | None = None,
    ) -> None:
        """`reviews`: checks callers' rights; None: `connection`. `tracing`: makes spans, if any."""
        # `open_files`: the limit of this process, None if no connection is a file. `memory`: how much of it is in use.
        connection = SharedWrites(connection)
        if tracing is not None:
            connection = tracing.cluster(connection)
            reviews = None if reviews is None else tracing.requests(reviews)
        self.registry = CollectorRegistry()
        self.connections: int | None = None
        """Most open connections of its callers; None: as in the settings."""
        most_together: int | None = None
        if open_files is not None:
            most_together, self.connections = open_at_once(open_files, settings.connections_limit)
        clock, now, chance = world.clock, world.clock.now, world.chance
        self.flight_recorder = FlightRecorder(clock)
        self.announcements = DecisionStream(clock)
        rules = Rules(
            reserve_at_filter=settings.reserve_at_filter,
            switches=switches_in(settings),
            keys_per_node=settings.max_ephemeral_resources_per_node,
            cross_namespace_units=settings.cross_namespace_units == "allow",
            most_together=most_together,
            patience=BackfillTrigger(settings.backfill_after_skips, settings.backfill_after_seconds),
            schedulers=frozenset(settings.scheduler_names),
            thrift=BackfillLimits(settings.backfill_max_share, settings.backfill_max_seconds),
            long_running_seconds=settings.long_running_seconds,
            expected_members_limit=settings.expected_members_limit,
            allowances=settings.isolation.allowances(),
            preemption=Bounds(
                settings.preemptions_per_gang_and_hour,
                settings.preempted_pods_per_gang_and_hour,
                settings.preempt_foreign_pods,
                settings.preempts_despite_budgets == "last-resort",
                settings.preempts_for_policies,
            ),
        )
        self.scheduler = Scheduler(
            clock, rules, registered(settings.policies, settings.policies_folder), life=world.unique()
        )
        self.announcements.named = self.scheduler.cache.gangs.naming.of
        self.write_back = WriteBack(
            self.scheduler.cache,
            ApiNodeStatusWriter(connection),
            wrote=lambda seconds: self.metrics.node_written(seconds),
            undone=lambda: self.metrics.node_undone(),
            chance=chance,
        )
        self.metrics = Metrics(self.registry, self.scheduler.cache, self.write_back, lambda: self.intents.unfinished())
        self._auditor = InvariantChecker(self.scheduler.cache, self.flight_recorder, self.metrics.violated)
        self.gates = PermitGates()
        binder = ApiBinder(connection)
        told, logs_decisions = self.announcements.emit, settings.log_level == "debug"
        announced: Callable[[Effect], None] = decision_log.also_told(told) if logs_decisions else told
        live_pods = ApiLivePods(connection)
        self.effects = Effects(
            self.scheduler,
            binder,
            ApiWaker(connection),
            ApiEvictor(connection, now=now),
            ApiRecorder(connection, now=now),
            nominator=ApiNominator(connection),
            disruptions=ApiDisruptions(connection),
            live_pods=live_pods,
            evictions_per_second=settings.evictions_per_second,
            flight_recorder=self.flight_recorder,
            gates=self.gates,
            announced=announced if tracing is None else tracing.told(announced),
            advertise=self.write_back.advertise,
            ended=lambda pod: self.reconcile.pod_ended(pod),
            placed=self.metrics.gang_placed,
            destroyed=logged(self.metrics.destroyed),
            withheld=self.metrics.withheld,
        )
        scheduling = self.scheduling = BindingCycle(
            self.scheduler,
            self.effects,
            self.gates,
            binder,
            write_within=settings.scheduler_http_timeout_seconds * 0.5,
            flight_recorder=self.flight_recorder,
            announced=self.announcements.emit,
        )
        self.verbs: Verbs = decision_log.LoggedVerbs(scheduling, clock) if logs_decisions else scheduling
        if tracing is not None:
            self.verbs = tracing.verbs(self.verbs, self.scheduler.cache.pods)
        store = ApiResourceStore(connection, now)
        self.resources = Resources(
            self.scheduler,
            self.effects,
            store,
            self.write_back,
            WriteIds(world.unique),
            lambda names: self.intents.require_finished(names),
        )
        self.intents = IntentLog(
            ApiIntentStore(connection, now),
            self.resources.taking_back,
            clock,
            namespace=settings.own_namespace,
            listed=lambda: self._intents.reflector.synced.is_set() if self._intents.known.is_set() else None,
            chance=chance,
        )
        self._conditions: Conditions[EphemeralResource, ResourceStatus] = Conditions(
            self.resources.known, store, self.resources.placements, chance=chance
        )
        self.reconcile = Resync(
            self.scheduler,
            self.effects,
            self.resources,
            self.write_back,
            live_pods,
            is_being_written=self.intents.is_about,
            each_round=[
                self._conditions.look_again,
                lambda: self._pods.doubt(self.scheduler.pod_events.answered.is_doubtful()),
            ],
            chance=chance,
        )
        escher_policies = policies.Policies()
        self.hosting = EslHost(self.scheduler.cache, self.resources, self._known)
        policy_matching = GovernedByKeeper(self.scheduler, self.effects)
        self.asked = EslController(
            self.hosting,
            decision_log.LoggedGoverning(policy_matching) if logs_decisions else policy_matching,
            lambda name: self.policies.in_force(name),
            listed=lambda: self._policies.reflector.synced.is_set(),
        )
        self.policies = EscherPolicies(
            ApiObjectStore(connection, escher_policies, now),
            clock,
            lambda spec: in_force(spec, Spelling.KUBERNETES),
            self.asked,
            GovernedPods(lambda name: self.scheduler.cache.policy_matching.of_namespace(name).values(), clock),
            isolation=self.scheduler.cache.isolation,
            installed=lambda: self._policies.there,
            attempt=tried,
            trouble=self.asked.trouble,
            marks=WriteIds(world.unique),
            chance=chance,
        )
        self._stale_wakes = WakeCleanup(self.scheduler.cache, ApiWaker(connection))
        self.switch_settings = SwitchSettings(self.scheduler, self.effects)
        self.isolating = IsolationInForce(self.scheduler, self.effects, self.resources.capacities, self.policies)
        queries = Queries(self.scheduler.cache, self.resources.capacities)
        self._memory = memory
        copies = partial(Forked, at_once=world.at_once, memory=memory)
        what_if = WhatIf(self.scheduler, copies())
        self.management = Management(
            resources=self.resources,
            transactions=Transactions(self.scheduler, self.effects, self.resources, self.intents, self.reconcile.nudge),
            state=queries,
            gangs=queries,
            explain=RemedySearch(
                self.scheduler.cache,
                Explain(self.scheduler.cache, self.resources.capacities.why_withheld),
                # A separate pool of copies: a what-if call does not wait for all that an explanation tries.
                copies(),
                what_if.simulate_within,
            ),
            safety_switches=self.switch_settings,
            quota=self.isolating,
            policies=self.policies,
            asks=self.asked,
            events=self.announcements,
            what_if=what_if,
            dump=Dumping(
                self.scheduler,
                self.resources.all,
                self.resources.capacities,
                # Another separate pool: a dump takes longer than everything else in copies.
                copies(_DUMPS_WITHIN),
                written,
                settings.policies,
            ),
        )
        planning = self.scheduler.cache.gangs.planning
        if logs_decisions:
            planning.on_given_up = decision_log.plan_given_up
            self.resources.capacities.on_event = decision_log.resource_set
        if tracing is not None:
            planning.on_given_up = tracing.given_up(planning.on_given_up)
        self._connection = connection
        self._authority = authority(reviews or connection, settings)
        elapsed = asyncio.get_running_loop().time
        facts = partial(Facts, scheduler=self.scheduler, performer=self.effects, recorder=self.flight_recorder)
        follow = partial(Reflector, connection, on_relist=self.metrics.relisted, clock=elapsed, chance=chance)
        self._nodes = follow(
            kinds.nodes(),
            self.isolating.nodes(self.hosting.nodes(facts(Node))),
            before_list=self.write_back.before_list,
        )
        self._pods = follow(
            kinds.pods(settings.scheduler_http_timeout_seconds),
            self.hosting.pods(facts(Pod)),
            before_list=self.scheduler.pod_events.answered.before_list,
        )
        self._objects = follow(
            kinds.ours(EphemeralResources()), self.resources.known, before_list=self.resources.known.before_list
        )
        self.reflectors: list[Reflector[Any]] = [self._nodes, self._pods, self._objects]
        self.scheduler.cache.staleness = Staleness(self.ages, settings.stale_after_seconds, self.lost_for)
        # Only preemption waits for these: see `Budgets.known`.
        self.scheduler.cache.around.budgets.known = False
        self.scheduler.cache.around.daemons.known = False
        of_daemon_sets = facts(DaemonSet)
        # Once EphemeralResources are listed, the API server knows Escher's API group.
        ours_there, objects = partial(is_served, connection, DOMAIN, VERSION), self._objects.synced
        self._policies = OptionalKind(
            follow(
                kinds.ours(escher_policies), self.policies.sink, before_list=self.policies.tending.known.before_list
            ),
            lambda: ours_there(policies.PLURAL),
            after=objects,
        )
        self._intents = OptionalKind(
            follow(
                kinds.ours(intents.TransactionIntents(), settings.own_namespace),
                self.intents.known,
                before_list=self.intents.known.before_list,
            ),
            lambda: ours_there(intents.PLURAL),
            after=objects,
            patience=START_SECONDS,
        )
        groups = follow(pod_groups.pod_groups(), facts(PodGroup))
        self._narrowing = SafetyKinds(
            [
                OptionalKind(follow(namespaces.namespaces(), self.switch_settings)),
                self._policies,
                self._intents,
                OptionalKind(
                    groups,
                    lambda: is_served(connection, pod_groups.GROUP, pod_groups.VERSION, groups.kind),
                    uninstalled=lambda: self.effects.do(self.scheduler.pod_groups_uninstalled()),
                ),
                OptionalKind(follow(jobs.jobs(), facts(Promise)), patience=START_SECONDS),
                OptionalKind(
                    follow(daemon_sets.daemon_sets(), of_daemon_sets),
                    patience=START_SECONDS,
                    gone_without=lambda: deque(of_daemon_sets.replace(()), maxlen=0),
                ),
            ],
            settings.without,
            beside=[OptionalKind(follow(budgets(), facts(Budget)), patience=START_SECONDS)],
        )
        self._losses = UnreadableKinds(lambda: [*self.reflectors, *self._narrowing.there()])

    def begin_with_nodes(self, nodes: Iterable[Node], version: str) -> None:
        """Uses a reflector's nodes at that version as their first list. Call it before `run`."""
        self._nodes.begin_from(nodes, version)

    def ready(self) -> bool:
        """Whether every kind has been listed once. Until then, the ledger is incomplete."""
        return self._narrowing.known and all(reflector.synced.is_set() for reflector in self.reflectors)

    def is_patient(self) -> bool:
        """Whether it is not ready because it waits, for a limited time, for a helping kind."""
        return self._narrowing.is_patient()

    def gaps(self) -> Gaps:
        """Kinds that are not known, and why."""
        unlisted = {each.kind: each.lost.why for each in self.reflectors if not each.synced.is_set()}
        return Gaps(unlisted | self._narrowing.waits_for(), self._narrowing.without(), self._losses.now())

    @property
    def intents_known(self) -> asyncio.Event:
        """Set once all stored intents are known, or it is known that they cannot be read."""
        return self._intents.known

    def ages(self) -> dict[str, float]:
        """Seconds since the API server's last answer about each kind that decisions depend on."""
        ages = {each.kind: age for each in self.reflectors if (age := each.age) is not None}
        return ages | self._narrowing.ages()

    def lost_for(self) -> dict[str, float]:
        """Seconds for which each of these kinds could not be followed."""
        return {each.kind: each.lost.seconds for each in self.reflectors} | self._narrowing.lost_for()

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Follows the cluster until cancelled. `beside`: other work for the same time."""
        async with asyncio.TaskGroup() as group:
            for work in (*self._work(), *beside):
                group.create_task(work)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        synced = [reflector.synced for reflector in self.reflectors]
        return [
            self._nodes.run(),
            self._follow_objects(),
            self._follow_pods(),
            *self._narrowing.work(),
            self._losses.watch(),
            self.asked.run(),
            self.policies.tending.run(after=[self._policies.reflector.synced]),
            self.write_back.run(after=[self._nodes.synced, self._objects.synced]),
            self._conditions.run(after=synced),
            self.reconcile.run(after=synced),
            self.intents.run(after=[*synced, self._intents.synced]),
            self._stale_wakes.run(),
            self._connection.keep_warm(_WARM_CONNECTIONS),
            self._auditor.run(),
            self.scheduler.cache.staleness.watch(
                lambda: self.effects.do(self.scheduler.settle()), self.switch_settings.set_uncertain
            ),
        ]

    async def _follow_objects(self) -> None:
        """Follows after the node status is known: see `Capacities.first_full`."""
        await self._nodes.synced.wait()
        await self._objects.run()

    async def _follow_pods(self) -> None:
        """Follows pods after the kinds that narrow what Escher may do are known."""
        await self._narrowing.until_known()
        await self._pods.run()

    async def _known(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def settle_memory(self) -> None:
        """Keeps the objects of the first lists out of garbage collection, which delays verbs."""
        gc.freeze()
        # Collections are rare from here on, because nearly all objects made during the lists stay.
        gc.set_threshold(50_000, 50, 50)
        await self._known()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*SMALL_COLLECTIONS)
        _log.info("ready", nodes=len(self.scheduler.cache.nodes), pods=len(self.scheduler.cache.pods))

    def settings_file(self, path: Path, load: Callable[[], Settings], settings: Settings) -> SettingsFile:
        """The follower of the settings file, for the settings that can change at run time."""

        def changed(now: Settings) -> None:
            self.switch_settings.set_everywhere(switches_in(now))
            self.isolating.set(*now.isolation.allowances())

        return SettingsFile(path, load, settings, changed=changed, broken=self.metrics.settings_broken)

    def asgi(self, settings: Settings, replica: Callable[[], Standing] | None = None) -> Service:
        """`replica`: this replica's state among several; None if it is the only one."""
        return create_app(
            self.verbs,
            self.management,
            ready=self.ready if replica is None else lambda: replica().leading and self.ready(),
            replica=replica,
            ages=self.ages,
            gaps=self.gaps,
            registry=self.registry,
            body_limit=settings.max_body_bytes,
            room=BodyRoom(settings.max_inflight_body_bytes or 2 * settings.max_body_bytes),
            longest_wait=settings.scheduler_http_timeout_seconds,
            entry=entry_of(settings, self._authority),
            shedding=LoadShedding(
                settings.api_queue_seconds, self._memory, settings.api_memory_limit_share, self.metrics.shed
            ),
        )

    async def close(self) -> None:
        self.announcements.close()
        await self.effects.close()
