"""What applications ask of running policies: each task's asker, template and notices.

    async with Policies(...) as space:                      # or escher_k8s.esl.PolicySpace
        requirement = await space.ask(apart, Task("t1", "web"))
        async with space.application() as mine:             # several applications share one space: LibSpace
            requirement = await mine.ask(apart, Task("t2", "web"))

One event loop decides each ask as a whole before the next. A subclass executes the effects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from extender.core.names import DOMAIN
from extender.esl.base import Effect, LaunchTask, Notice, PodRequirement
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.several import Several

_LABEL = f"esl.{DOMAIN}/"
_SPARE = 64

Template = Mapping[str, Any]
"""A pod, or a pod template, as Kubernetes' JSON has it."""

Tell = Callable[[Notice], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    application: Application | None
    template: Template | None


class PolicyAsks(ABC):
    """The asks of one space. A subclass executes the effects (`perform`)."""

    def __init__(self, policies: Several, on_notice: Tell) -> None:
        """`on_notice` gets every notice; an application also gets those about its tasks."""
        self._policies = policies
        self._on_notice = on_notice
        self._asked: dict[tuple[str, str], _Asked] = {}

    @abstractmethod
    def perform(self, effects: Iterable[Effect]) -> None:
        """These effects are under way. Raises the error with which the space ended."""

    @abstractmethod
    def now(self) -> float:
        """Seconds, on the clock of the policies."""

    async def ask(self, policy: PolicyEsl, task: Task, template: Template | None = None) -> PodRequirement:
        """The requirement for the task's pod; the policy's changes of nodes are under way.

        The caller need not wait for them: a pod that asks for missing resources waits. `template`: of the task's pod,
        for a policy that launches it. Asking again for the same changes nothing. Raises ValueError if another
        application asked for the task, or if the policy is not of this space; InvalidName if task or group are no
        labels.
        """
        return self._ask(policy, task, template, None)

    async def release(self, policy: PolicyEsl, task: str) -> None:
        """The task is not wanted any more; no effect if it is not known. An existing pod stays."""
        self._known(policy)
        self.perform(policy.release(task, self.now()))
        self._asked.pop((policy.name, task), None)

    async def do(self, wish: Callable[[float], Iterable[Effect]]) -> None:
        """Calls a policy's own method with the time; the resulting effects are under way."""
        self.perform(wish(self.now()))

    def application(self, on_notice: Tell = lambda notice: None) -> Application:
        """One of several applications that share this space, while its `async with` block lasts."""
        return Application(self, on_notice)

    def _ask(
        self, policy: PolicyEsl, task: Task, template: Template | None, application: Application | None
    ) -> PodRequirement:
        self._known(policy)
        key = (policy.name, task.name)
        before = self._asked.get(key)
        if before is not None and before.application is not application and task.name in policy.tasks:
            raise ValueError(f"task {task.name!r} of policy {policy.name!r} was asked for by another application")
        requirement, effects = policy.ask(task, self.now())
        self._asked[key] = _Asked(application, template)
        self._forget_what_is_over()
        self.perform(effects)
        return requirement

    def _known(self, policy: PolicyEsl) -> None:
        if not any(policy is each for each in self._policies.policies):
            raise ValueError(f"policy {policy.name!r} does not belong to this space")

    def _forget_what_is_over(self) -> None:
        tasks = {each.name: each.tasks for each in self._policies.policies}
        if len(self._asked) > 2 * sum(map(len, tasks.values())) + _SPARE:
            self._asked = {key: asked for key, asked in self._asked.items() if key[1] in tasks[key[0]]}

    def _leave(self, application: Application) -> None:
        """Releases the tasks that the application asked for and that have no pod."""
        for policy in self._policies.policies:
            there = {pod.labels[policy.label] for pod in policy.view.alive(policy.label)}
            mine = [key for key, asked in self._asked.items() if asked.application is application]
            for name, task in [key for key in mine if key[0] == policy.name]:
                del self._asked[name, task]
                if task not in there:
                    self.perform(policy.release(task, self.now()))

    # -- for subclasses -----------------------------------------------------------------------------------------------

    def _take_notice(self, notice: Notice) -> None:
        self._on_notice(notice)
        applications = [asked.application for key, asked in self._asked.items() if _is_about(notice, key)]
        for application in dict.fromkeys(applications):
            if application is not None:
                application.on_notice(notice)

    def _template_of(self, launch: LaunchTask) -> Template | None:
        """The template that the application gave for the task to launch."""
        for label, task in launch.requirement.labels.items():
            asked = self._asked.get((label.removeprefix(_LABEL), task)) if label.startswith(_LABEL) else None
            if asked is not None and asked.template is not None:
                return asked.template
        return None


def _is_about(notice: Notice, asked: tuple[str, str]) -> bool:
    return notice.policy == asked[0] and notice.task in ("", asked[1])


class Application:
    """One of several applications that share a space.

    Leaving the block releases its tasks that were not launched; its pods, and what they hold, stay."""

    def __init__(self, space: PolicyAsks, on_notice: Tell) -> None:
        self.on_notice = on_notice
        self._space = space

    async def ask(self, policy: PolicyEsl, task: Task, template: Template | None = None) -> PodRequirement:
        """As the space's, for this application: no other may ask for a task of that name."""
        return self._space._ask(policy, task, template, self)

    async def release(self, policy: PolicyEsl, task: str) -> None:
        """As the space's."""
        await self._space.release(policy, task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._space._leave(self)
