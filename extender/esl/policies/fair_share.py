"""Hierarchical fair sharing: users get whole nodes by weight, within their parents' nodes.

A granted node carries the resources of its user and of all ancestors, without limit. Each task asks for its user's
resource. So a child is confined to its parent's nodes, and a parent's own tasks run beside its children's. Shares are
integer apportionments (`apportion`): of the nodes that are not cordoned among the top-level users, and of a user's
nodes among its children. An idle user does not count, nor a parent without tasks whose children all do not count. Its
siblings get its share.

Guaranteed: a node runs tasks of two users only if one is an ancestor of the other. A node that changes hands loses its
marks first. It is granted when the node has confirmed that and no task of the former user runs there; nothing is
killed. So if nothing keeps nodes occupied, shares are exact and as few nodes as possible changed hands. Not guaranteed:
a node for each, if there are more users than nodes; and the shares, while long tasks run. News of pods must not be
later than news of nodes. All pods must be known: create the users and list everything (`begin`) before any grant. On
node loss, the remaining nodes are shared. A cordoned node belongs to no user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.core.policies.policy_types import LARGEST_WEIGHT
from extender.esl.base import Effect, Notice
from extender.esl.policies.apportion import apportion
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName, require_label
from extender.kube.quantities import Vector

Present = Mapping[NodeName, Collection[str]]
"""By node, the users that have a running task or the mark there."""


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
        """Adds the user, not idle, or changes its weight. Raises ValueError."""
        require_label("user", user)
        self.key(user)
        if not 1 <= weight <= LARGEST_WEIGHT:
            raise ValueError(f"weight of user {user!r} is {weight}; write 1 to {LARGEST_WEIGHT}")
        if parent is not None and parent not in self.users:
            raise ValueError(f"parent of user {user!r} is {parent!r}, which does not exist; create it first")
        if user in self.users and self.users[user].parent != parent:
            raise ValueError(f"parent of user {user!r} is {self.users[user].parent!r}; it cannot become {parent!r}")
        self.users[user] = User(weight, parent)
        return self._effects(None, now)

    def remove_user(self, user: str, *, now: float) -> list[Effect]:
        """The user is gone; its tasks run on, or get a notice. Raises ValueError for a parent."""
        if children := self._children(user):
            raise ValueError(f"user {user!r} has children: {', '.join(children)}; remove them first")
        self.users.pop(user, None)
        waiting = [task for task in self.tasks.values() if task.group == user]
        return [*map(self._in_vain, waiting), *self._effects(None, now)]

    def set_users(self, users: Mapping[str, User], *, now: float) -> list[Effect]:
        """These users exist, and no others; running tasks go on.

        Raises ValueError for unknown parents or cycles, InvalidName for too long resource names."""
        for user, said in users.items():
            self.key(require_label("user", user))
            if said.parent is not None and said.parent not in users:
                raise ValueError(f"parent of user {user!r} is {said.parent!r}, which does not exist")
            above, line = said.parent, [user]
            while above is not None and above in users:
                if above in line:
                    raise ValueError(f"the parents of user {user!r} form a cycle: {' -> '.join([*line, above])}")
                line.append(above)
                above = users[above].parent
        gone = [task for task in self.tasks.values() if task.group in self.users.keys() - users.keys()]
        self.users = dict(users)
        return [*map(self._in_vain, gone), *self._effects(None, now)]

    def _in_vain(self, task: Task) -> Notice:
        return Notice(self.name, task.name, f"user {task.group} was removed: its waiting task cannot start")

    def set_idle(self, user: str, idle: bool = True, *, now: float) -> list[Effect]:
        """The user and its descendants want nothing for now, or want again. Raises KeyError."""
        self.users[user] = replace(self.users[user], idle=idle)
        return self._effects(None, now)

    def requires(self, task: Task) -> Vector:
        if task.group not in self.users:
            raise InvalidName("group", task.group, "is not a user; create it first")
        return {self.key(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        return {
            node: {self.key(above): UNLIMITED for above in self._line(user)}
            for user, nodes in self._grants().items()
            for node in nodes
        }

    # -- grants ------------------------------------------------------------------------------------------------------

    def _grants(self) -> Mapping[str, list[NodeName]]:
        """By user that shares with no child, the nodes that it is to have now."""
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
            # Nodes in use are kept before idle ones, so that the node to give up can go at once.
            has = [
                node
                for node in nodes
                if user in fits[node] and (user in marked.get(node, ()) or user in busy.get(node, ()))
            ]
            has.sort(key=lambda node: (node not in busy, user not in marked.get(node, ()), node))
            granted[user] = has[:part]
        kept = {node for nodes in granted.values() for node in nodes}
        # Nodes with an ancestor's task come first: no other user can have those now, but any can have the others.
        for node in sorted((node for node in nodes if node not in kept), key=lambda node: (node not in busy, node)):
            short = [user for user in fits[node] if len(granted[user]) < parts[user]]
            if short:
                granted[min(short, key=lambda user: (len(granted[user]) / parts[user], user))].append(node)
        return granted

    def _parts(self, whole: int, parent: str | None = None) -> dict[str, int]:
        """How many of `whole` nodes each user under `parent` gets that shares with no child."""
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
        """The user and all its ancestors."""
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
