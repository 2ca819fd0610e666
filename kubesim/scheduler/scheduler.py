"""Scheduler: finds a node for one pod after the other; bindings run in parallel.

It follows pods and nodes, keeps cache and queue up to date, and writes results to the API and in events.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import structlog

from extender.kube.client.requests import Requests
from extender.kube.errors import Refused, Unavailable
from kubesim.apiserver.machinery.store import Store
from kubesim.clock import Clock
from kubesim.controllers.following import LATE_BY, Following
from kubesim.kinds import DISRUPTION_BUDGET, NODE, POD
from kubesim.scheduler.config import SchedulerConfig
from kubesim.scheduler.extender_client import ExtenderClient, ExtenderFailed, HttpExtender
from kubesim.scheduler.extenders import Extender
from kubesim.scheduler.informer import Informer
from kubesim.scheduler.plugins.hints import News
from kubesim.scheduler.preemption import Outcome, Preemption
from kubesim.scheduler.queue import Queue
from kubesim.scheduler.selection import Selection
from kubesim.scheduler.state.cache import Cache
from kubesim.scheduler.state.lines import QueuedPod
from kubesim.scheduler.state.news import ClusterEvent
from kubesim.scheduler.state.nominator import Nominator
from kubesim.scheduler.state.seen import SeenPod
from kubesim.scheduler.state.verdicts import CannotSchedule, NoNodes
from kubesim.scheduler.writer import SCHEDULED, Writer

_log = structlog.get_logger(__name__)
_CYCLE = 0.0005
_NO_CLAIMS = "no new claims to deallocate"
"""The message of the plugin DynamicResources when preemption has failed too."""


class Scheduler:
    """One scheduler process with all its profiles.

    `extender`: replaces every extender of the configuration; None: each is called over HTTP. `cycle`: seconds of
    thought for each pod. `late_by`: seconds from a write to its delivery."""

    def __init__(
        self,
        config: SchedulerConfig,
        requests: Requests,
        store: Store,
        clock: Clock,
        rng: random.Random,
        extender: ExtenderClient | None = None,
        *,
        cycle: float = _CYCLE,
        late_by: float = LATE_BY,
    ) -> None:
        self.attempts: Counter[str] = Counter()
        """By result: scheduled, unschedulable, error."""
        self._config = config
        self._clock = clock
        self._cycle = cycle
        self._own_clients: list[HttpExtender] = []
        self._extenders = [Extender(each, extender or self._reach(each)) for each in config.extenders]
        self._writer = Writer(requests, clock)
        self.cache = Cache()
        self.informer = Informer(config, self.cache)
        nominator = Nominator(self.informer.pods.get)
        self.preemption = Preemption(
            self.cache,
            nominator,
            self._extenders,
            self._writer,
            clock,
            rng,
            self.informer.pods.get,
            lambda: store.list(DISRUPTION_BUDGET),
        )
        self.queue = Queue(clock, nominator, config.initial_backoff, config.max_backoff, self.preemption.is_running)
        self.informer.queue = self.queue
        self.preemption.again = self.queue.force
        self._selection = Selection(self.cache, nominator, self._extenders, config.percentage, rng)
        self._following = Following(store, (NODE, POD), self.informer.hear, late_by=late_by)
        self._bindings: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Runs until it is cancelled. Extenders may go on with running calls."""
        self._following.start()
        try:
            while True:
                await self.queue.wait()
                await asyncio.sleep(self._cycle)
                queued = self.queue.pop()
                if queued is not None:
                    await self._try(queued)
        finally:
            self._following.stop()
            self.queue.close()
            self.preemption.close()
            self._writer.close()
            for task in list(self._bindings):
                task.cancel()
            for client in self._own_clients:
                await client.close()

    def _reach(self, config: Any) -> ExtenderClient:
        client = HttpExtender(config.url_prefix, https=config.enable_https, tls=config.tls)
        self._own_clients.append(client)
        return client

    # -- one attempt ---------------------------------------------------------------------------------------------

    async def _try(self, queued: QueuedPod) -> None:
        """One attempt. An unexpected exception counts as an error of this pod, which is retried."""
        try:
            await self._schedule(queued)
        except Exception as error:
            _log.exception("a pod could not be looked at", pod=str(queued.pod))
            await self._fail(queued, f"{type(error).__name__}: {error}", rejected=False, nominated="")

    async def _schedule(self, queued: QueuedPod) -> None:
        pod = queued.pod
        profile = self._config.profile(pod.scheduler)
        if profile is None or self.cache.is_assumed(pod.uid):
            self.queue.done(pod.uid)
            return
        if pod.deleting:
            self._record(pod, "Warning", "FailedScheduling", f"skip schedule deleting pod: {pod}")
            self.queue.done(pod.uid)
            return
        attempt = self._selection.attempt(pod, profile)
        try:
            node = await self._selection.choose(attempt)
        except NoNodes as error:
            await self._fail(queued, str(error), rejected=True, nominated="")
            return
        except CannotSchedule as error:
            await self._fail(queued, str(error), rejected=False, nominated="")
            return
        diagnosis = attempt.diagnosis
        if node is None:
            if diagnosis.before:
                # The plugin DynamicResources has prepared nothing then, and fails before preemption runs.
                outcome = Outcome(None)
                diagnosis.after = "not found"
            else:
                outcome = await self.preemption.preempt(pod, diagnosis, attempt.refusal)
                diagnosis.after = _said(outcome)
            message = diagnosis.message(attempt.nodes)
            queued.rejectors = diagnosis.rejectors
            await self._fail(queued, message, rejected=True, nominated=outcome.node, plugins=diagnosis.rejectors)
            return
        assumed = pod.on(node)
        if not self.cache.assume(assumed):
            await self._fail(queued, f"pod {pod} is in the cache, so can't be assumed", rejected=False, nominated="")
            return
        self.queue.nominator.remove(pod.uid)
        self._start(self._bind(queued, assumed))

    async def _bind(self, queued: QueuedPod, assumed: SeenPod) -> None:
        self.queue.done(assumed.uid)
        failure = await self._written(assumed)
        if not failure:
            self.attempts["scheduled"] += 1
            self._record(
                assumed, "Normal", "Scheduled", f"Successfully assigned {assumed} to {assumed.node}", action="Binding"
            )
            return
        if self.cache.forget(assumed):
            self.queue.move(News(ClusterEvent.ASSIGNED_POD_DELETE, assumed))
        queued.pod = assumed
        await self._fail(queued, failure, rejected=False, nominated="")

    async def _written(self, pod: SeenPod) -> str:
        """Binds the pod; returns the failure, or "" if the pod is bound."""
        for extender in self._extenders:
            if not extender.config.bind_verb or not extender.is_interested(pod):
                continue
            try:
                await extender.bind(pod, pod.node)
            except ExtenderFailed as error:
                if extender.config.ignorable:
                    continue
                return str(error) or "the extender gave no reason"
            return ""
        try:
            await self._writer.bind(pod, pod.node)
        except (Unavailable, Refused) as error:
            return f'running Bind plugin "DefaultBinder": {error}'
        return ""

    async def _fail(
        self,
        queued: QueuedPod,
        message: str,
        *,
        rejected: bool,
        nominated: str | None,
        plugins: dict[str, None] | None = None,
    ) -> None:
        """Ends a failed attempt: returns the pod to the queue, and writes the reason to the API."""
        self.attempts["unschedulable" if rejected else "error"] += 1
        queued.rejectors = dict(plugins or {})
        pod = queued.pod
        now = self.informer.pods.get(pod.key)
        if now is None or now.node:
            # The pod was deleted, or was bound late or by another client.
            self.queue.done(pod.uid)
        elif now.uid != pod.uid:
            self.queue.done(pod.uid)
            return
        else:
            queued.pod = pod = now
            self.queue.give_back(queued)
        self.queue.nominator.add(pod, nominated)
        self._record(pod, "Warning", "FailedScheduling", message)
        reason = "Unschedulable" if rejected else "SchedulerError"
        condition = {"type": SCHEDULED, "status": "False", "reason": reason, "message": message}
        try:
            await self._writer.patch_status(pod, condition, nominated)
        except (Unavailable, Refused) as error:
            _log.info("a pod's condition could not be written", pod=str(pod), why=str(error))

    def _record(self, pod: SeenPod, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        self._writer.record(pod, kind, reason, action, note, pod.scheduler)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._bindings.add(task)
        task.add_done_callback(self._bindings.discard)


def _said(outcome: Outcome) -> str:
    return ", ".join((_NO_CLAIMS, outcome.message)) if outcome.message else ""
