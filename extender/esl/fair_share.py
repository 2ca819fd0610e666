"""Hierarchical fair sharing: users have whole nodes, in proportion to their weights, inside what their parents have.

A node that is granted carries the resources of its user and of all above, without limit, and each task asks for its
user's. So a child is confined to its parent's nodes, and a parent's own tasks run beside its children's. Shares are
integer apportionments (`apportion`), of the nodes that are not cordoned among the first users, and of what a user has
among its children. Who is idle counts for nothing, and so does a user all of whose children do and that has no task
itself; what it had is its siblings'.

Guaranteed: on no node do tasks of two users run of whom neither is above the other. A node that is to change hands
loses its marks, and is granted when the node has said so and nothing of the former user runs there; nothing is killed.
So when nothing keeps nodes occupied the shares are exact, and as few nodes have changed hands as can be. Not
guaranteed: a node, where there are more users than nodes; and shares while long tasks run. It takes news of pods to be
no later than of nodes, and all pods to be known: who starts creates its users, and lists what there is
(`begin`) before anything is granted.

On node loss: shares are those of the nodes left. A cordoned node is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.core.policy_types import LARGEST_WEIGHT
from extender.esl.apportion import apportion
from extender.esl.base import Effect, Notice
from extender.esl.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, require_label
from extender.kube.quantities import Vector

Present = Mapping[NodeName, Collection[str]]
"""The users of whom something is on a node: a task that runs, or the mark."""


@dataclass(frozen=True, slots=True)
class User:
    weight: int
    parent: str | None = None
    idle: bool = False


class FairShare(PolicyEsl):
    """A task's group is its user."""

    def __init__(self, name: str, **more: str) -> None:
        super().__init__(name, **more)
        self.users: dict[str, User] = {}

    def create_user(self, user: str, weight: int, parent: str | None = None, *, now: float) -> list[Effect]:
        """The user is there, and not idle. Of one that is there the weight changes. Raises ValueError."""
        require_label("user", user)
        self.key(user)
        if not 1 <= weight <= LARGEST_WEIGHT:
            raise ValueError(f"weight of user {user!r} is {weight}; it is from 1 to {LARGEST_WEIGHT}")
        if parent is not None and parent not in self.users:
            raise ValueError(f"parent of user {user!r} is {parent!r}, who is not there; create that one first")
        if user in self.users and self.users[user].parent != parent:
            raise ValueError(f"parent of user {user!r} is {self.users[user].parent!r}, and cannot become {parent!r}")
        self.users[user] = User(weight, parent)
        return self._effects(None, now)

    def remove_user(self, user: str, *, now: float) -> list[Effect]:
        """The user is not there; what runs goes on, and whoever waits is told of. Raises ValueError where it has
        children."""
        if children := self._children(user):
            raise ValueError(f"user {user!r} has children: {', '.join(children)}; remove them first")
        self.users.pop(user, None)
        waiting = [task for task in self.tasks.values() if task.group == user]
        return [*map(self._in_vain, waiting), *self._effects(None, now)]

    def set_users(self, users: Mapping[str, User], *, now: float) -> list[Effect]:
        """These users and no others are there; what runs goes on. Raises ValueError where one names a parent that is
        not there, or is above itself, InvalidName where its resource's name would be too long."""
        for user, said in users.items():
            self.key(require_label("user", user))
            if said.parent is not None and said.parent not in users:
                raise ValueError(f"parent of user {user!r} is {said.parent!r}, who is not there")
            above, line = said.parent, [user]
            while above is not None and above in users:
                if above in line:
                    raise ValueError(f"user {user!r} is led back to by its parents: {' -> '.join([*line, above])}")
                line.append(above)
                above = users[above].parent
        gone = [task for task in self.tasks.values() if task.group in self.users.keys() - users.keys()]
        self.users = dict(users)
        return [*map(self._in_vain, gone), *self._effects(None, now)]

    def _in_vain(self, task: Task) -> Notice:
        return Notice(self.name, task.name, f"user {task.group} is gone: a task of it that waits does so in vain")

    def set_idle(self, user: str, idle: bool = True, *, now: float) -> list[Effect]:
        """The user, and all below, wants nothing for now; or does again. Raises KeyError where it is not there."""
        self.users[user] = replace(self.users[user], idle=idle)
        return self._effects(None, now)

    def requires(self, task: Task) -> Vector:
        if task.group not in self.users:
            raise InvalidName("group", task.group, "is no user; create it first")
        return {self.key(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        return {
            node: {self.key(above): UNLIMITED for above in self._line(user)}
            for user, nodes in self._grants().items()
            for node in nodes
        }

    # -- who has what ------------------------------------------------------------------------------------------------

    def _grants(self) -> Mapping[str, list[NodeName]]:
        """The nodes that each user who divides with nobody is to have by now."""
        busy, marked = self._busy(), self._marked()
        nodes = [name for name, node in sorted(self.view.nodes.items()) if not node.unschedulable]
        nodes = [node for node in nodes if not self.refuses(node)]
        parts = self._parts(len(nodes))
        fits = {
            node: [
                user
                for user in parts
                if all(self._in_line(user, other) for other in (*busy.get(node, ()), *marked.get(node, ())))
            ]
            for node in nodes
        }
        granted: dict[str, list[NodeName]] = {}
        for user, part in parts.items():
            # What is in use is kept before what is not, so that what has to go can go at once.
            has = [
                node
                for node in nodes
                if user in fits[node] and (user in marked.get(node, ()) or user in busy.get(node, ()))
            ]
            has.sort(key=lambda node: (node not in busy, user not in marked.get(node, ()), node))
            granted[user] = has[:part]
        kept = {node for nodes in granted.values() for node in nodes}
        # Where a task of one above runs first: nobody else can have these for now, and the others anybody can.
        for node in sorted((node for node in nodes if node not in kept), key=lambda node: (node not in busy, node)):
            short = [user for user in fits[node] if len(granted[user]) < parts[user]]
            if short:
                granted[min(short, key=lambda user: (len(granted[user]) / parts[user], user))].append(node)
        return granted

    def _parts(self, whole: int, parent: str | None = None) -> dict[str, int]:
        """How many of so many nodes each user below is due who divides with nobody."""
        weights = {user: self.users[user].weight for user in self._children(parent) if self._wants(user)}
        if not weights:
            return {} if parent is None else {parent: whole}
        parts: dict[str, int] = {}
        for user, part in apportion(whole, weights).items():
            parts.update(self._parts(part, user))
        return parts

    def _wants(self, user: str) -> bool:
        children = self._children(user)
        return not self.users[user].idle and (
            not children
            or any(self._wants(child) for child in children)
            or any(task.group == user for task in self.tasks.values())
        )

    def _children(self, parent: str | None) -> list[str]:
        return sorted(name for name, user in self.users.items() if user.parent == parent)

    def _line(self, user: str | None) -> Iterable[str]:
        """The user and all above."""
        while user is not None and user in self.users:
            yield user
            user = self.users[user].parent

    def _in_line(self, user: str, other: str) -> bool:
        return user in self._line(other) or other in self._line(user)

    def _busy(self) -> Present:
        there: dict[NodeName, set[str]] = {}
        for pod in self.view.running(self.label):
            assert pod.node is not None
            there.setdefault(pod.node, set()).add(pod.labels.get(self.group_label, ""))
        return there

    def _marked(self) -> Present:
        there: dict[NodeName, set[str]] = {}
        for node, user in self.furnished():
            there.setdefault(node, set()).add(user)
        return there
