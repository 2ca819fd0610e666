"""Policies for applications, with node status alone: any kube-scheduler, no service.

    async with Policies(connection, [apart := AntiAffinity("apart", namespace="team-a")], namespace="team-a") as space:
        requirement = await space.ask(apart, Task("web-1", group="web"))
        ...  # create the pod: requirement.attach(pod)

AppSpace: one object per application, whose policies have names of their own. LibSpace: one for several applications,
see `extender.esl.runtime.policy_asks`. Permissions: deploy/applications/policies-without-extender.yaml.

A policy owns the node resources in its name. The next process that runs a policy of that name adopts what a dead one
left: living pods keep theirs, the rest is removed. Two processes must not run one policy name at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import structlog

from extender.adapters.kubernetes.appspace.cluster_port import EslDriver
from extender.adapters.kubernetes.appspace.signal_exit import SignalExit
from extender.esl.base import Effect, Notice
from extender.esl.runtime.policy_asks import PolicyAsks, Tell
from extender.esl.runtime.policy_esl import PolicyEsl
from extender.esl.runtime.several import Several
from extender.kube.client.requests import Requests

_log = structlog.get_logger(__name__)


class Policies(PolicyAsks):
    """Any number of policies of one namespace, while the block lasts."""

    def __init__(
        self,
        requests: Requests,
        policies: Sequence[PolicyEsl],
        *,
        namespace: str = "default",
        keep: bool = False,
        end_within: float = 10.0,
        on_notice: Tell = lambda notice: None,
    ) -> None:
        """`keep`: resources stay for the next process. Else they go within `end_within` seconds.

        Pods stay. `on_notice` gets notices of tasks that would wait without effect. Raises ValueError as `Several`.
        """
        super().__init__(Several(policies, namespace), on_notice)
        self._keep = keep
        self._end_within = end_within
        self._signal = SignalExit()
        self._driver = EslDriver(
            requests,
            self._policies,
            lambda report: None,
            namespace=namespace,
            notice=self._noticed,
            template=self._template_of,
        )

    async def __aenter__(self) -> Self:
        """Returns when the policies know the current state. Raises Refused without permission."""
        self._signal.__enter__()
        try:
            await self._driver.__aenter__()
        except BaseException:
            try:
                await self._driver.__aexit__()
            finally:
                self._signal.__exit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *details: object) -> None:
        try:
            if not self._keep:
                self._driver.perform(self._policies.end(self._driver.now()))
                await self._driver.until(lambda: self._policies.ended, self._end_within)
        except TimeoutError:
            names = [policy.name for policy in self._policies.policies]
            _log.error("resources of policies remain until a process runs these policies again", policies=names)
        finally:
            try:
                await self._driver.__aexit__(*details)
            finally:
                self._signal.__exit__(None, None, None)

    def perform(self, effects: Iterable[Effect]) -> None:
        if self._driver.failure is not None:
            raise self._driver.failure
        self._driver.perform(effects)

    def now(self) -> float:
        return self._driver.now()

    def _noticed(self, notice: Notice) -> None:
        _log.warning("a policy notices", policy=notice.policy, task=notice.task, what=notice.text)
        self._take_notice(notice)
