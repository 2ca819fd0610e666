"""PolicySpace: an application runs policies itself, on its own cluster port.

    apart = AntiAffinity("apart", namespace="team-a")
    async with PolicySpace(port, [apart], namespace="team-a") as space:
        requirement = await space.ask(apart, Task("web-1", group="web"))
        ...  # create the pod: requirement.attach(pod)

No service is needed. AppSpace: one per application, with policies of its own names; LibSpace: one for several, by
`space.application()`. The next process with these policies finds what a dead one left: what living pods ask for stays,
the rest is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Self

from escher_k8s.cluster_port import AtPort, Looked, PolicyPort, Refused
from extender.esl.base import (
    CancelTask,
    Change,
    Effect,
    Event,
    LaunchTask,
    RemoveCapacity,
    SetCapacity,
    StopTask,
    TaskChange,
)
from extender.esl.runtime.policy_asks import PolicyAsks, Tell
from extender.esl.runtime.policy_esl import PolicyEsl
from extender.esl.runtime.several import Several
from extender.esl.runtime.task_manifest import task_manifest


class PolicySpace(PolicyAsks):
    """Any number of policies of one namespace, while the block lasts."""

    def __init__(
        self,
        port: PolicyPort,
        policies: Sequence[PolicyEsl],
        *,
        namespace: str = "default",
        keep: bool = False,
        end_within: float = 10.0,
        on_notice: Tell = lambda notice: None,
    ) -> None:
        """`keep`: the resources stay when the block ends, for the next process to adopt.

        Otherwise they are removed, within `end_within` seconds; running pods stay. `on_notice` gets what pods would
        wait for without effect. Raises ValueError if two policies have one name, or one is of another namespace."""
        super().__init__(Several(policies, namespace), on_notice)
        self._port = port
        self._keep = keep
        self._end_within = end_within
        self._first: list[Event] | None = []
        """What existed at first, until all of it is known."""
        self._at_port = AtPort(self._policies, port.events, self._carry_out, notice=self._take_notice)
        self._work = self._at_port.work

    async def __aenter__(self) -> Self:
        """The policies know everything that exists. Raises the port's failure."""
        try:
            self._at_port.begin(self._take)
            while self._first is not None and self._work.failure is None:
                self._work.changed.clear()
                await self._work.changed.wait()
            if self._work.failure is not None:
                raise self._work.failure
        except BaseException:
            await asyncio.gather(self._work.end(), return_exceptions=True)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Without `keep`, nodes have none of its resources. Raises port failures, TimeoutError."""
        try:
            if not self._keep:
                self._work.perform(self._policies.end(self._work.now()))
                await self._work.until(lambda: self._policies.ended, self._end_within)
        finally:
            await self._work.end()

    def perform(self, effects: Iterable[Effect]) -> None:
        if self._work.failure is not None:
            raise self._work.failure
        self._work.perform(effects)

    def now(self) -> float:
        return self._work.now()

    def _take(self, event: Event | Looked) -> None:
        if isinstance(event, Looked):
            if self._first is not None:
                first, self._first = self._first, None
                self._work.perform(self._policies.begin(first, self._work.now()))
        elif self._first is not None:
            self._first.append(event)
        else:
            self._work.put(event)

    async def _carry_out(self, change: Change | TaskChange) -> None:
        match change:
            case LaunchTask(task=task):
                if (template := self._template_of(change)) is None:
                    raise Refused(f"no template is known for task {task!r}")
                await self._port.create(task_manifest(change, template))
            case SetCapacity() | RemoveCapacity() | CancelTask() | StopTask():
                await self._port.carry_out(change)
            case _:
                raise Refused("a policy has no ghosts and evicts no pods")
