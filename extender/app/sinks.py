"""The keeper as the sink of what is listed and watched: nodes, pods, PodGroups, Jobs, disruption budgets. All news is
noted in the journal.

Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.app.journal import Journal
from extender.app.keeper import Keeper
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.pod_groups import PodGroup
from extender.core.promises import Promise


class Nodes:
    def __init__(self, keeper: Keeper, journal: Journal) -> None:
        self._keeper = keeper
        self._journal = journal

    def replace(self, objects: Iterable[Node]) -> None:
        self._journal.note("nodes listed")
        self._keeper.replace_nodes(objects)

    def upsert(self, item: Node) -> None:
        self._journal.note("node seen", item.name, item.version)
        self._keeper.see_node(item)

    def remove(self, item: Node) -> None:
        self._journal.note("node gone", item.name)
        self._keeper.lose_node(item.name)


class Pods:
    def __init__(self, keeper: Keeper, journal: Journal) -> None:
        self._keeper = keeper
        self._journal = journal

    def replace(self, objects: Iterable[Pod]) -> None:
        self._journal.note("pods listed")
        self._keeper.replace_pods(objects)

    def upsert(self, item: Pod) -> None:
        state = "finished" if item.finished else "deleting" if item.deleting else item.node or "pending"
        self._journal.note("pod seen", item, item.uid, state)
        self._keeper.see_pod(item)

    def remove(self, item: Pod) -> None:
        self._journal.note("pod gone", item, item.uid)
        self._keeper.lose_pod(item.uid)


class Groups:
    def __init__(self, keeper: Keeper, journal: Journal) -> None:
        self._keeper = keeper
        self._journal = journal

    def replace(self, objects: Iterable[PodGroup]) -> None:
        self._journal.note("pod groups listed")
        self._keeper.replace_groups(objects)

    def upsert(self, item: PodGroup) -> None:
        self._journal.note("pod group seen", item)
        self._keeper.see_group(item)

    def remove(self, item: PodGroup) -> None:
        self._journal.note("pod group gone", item)
        self._keeper.lose_group(item)


class Promises:
    """Not noted one by one: a Job's status changes with each of its pods."""

    def __init__(self, keeper: Keeper, journal: Journal) -> None:
        self._keeper = keeper
        self._journal = journal

    def replace(self, objects: Iterable[Promise]) -> None:
        self._journal.note("jobs listed")
        self._keeper.replace_promises({each.controller: each.pods for each in objects})

    def upsert(self, item: Promise) -> None:
        self._keeper.see_promise(item.controller, item.pods)

    def remove(self, item: Promise) -> None:
        self._keeper.lose_promise(item.controller)


class DisruptionBudgets:
    def __init__(self, keeper: Keeper, journal: Journal) -> None:
        self._keeper = keeper
        self._journal = journal

    def replace(self, objects: Iterable[Budget]) -> None:
        self._journal.note("disruption budgets listed")
        self._keeper.replace_budgets(objects)

    def upsert(self, item: Budget) -> None:
        self._journal.note("disruption budget seen", item, item.allowed)
        self._keeper.see_budget(item)

    def remove(self, item: Budget) -> None:
        self._journal.note("disruption budget gone", item)
        self._keeper.lose_budget(item)
