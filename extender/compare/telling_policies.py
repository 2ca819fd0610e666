"""What a report says of policies other than gangs: whether each was kept, and by whom it was not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from extender.compare.figures import estimate, mean
from extender.compare.measured import Setting, Table, not_kept
from extender.compare.page import Block, Heading, Points, Said, Tabular
from extender.compare.runs import TRIALS
from extender.compare.vocabulary import WORKLOADS
from extender.compare.wording import interval, many, number


def broken(table: Table) -> list[Block]:
    """Nothing where all was kept by those who are to keep it."""
    points = [
        f"`{each.approach}`: {WORKLOADS.get(each.setting.workload, each.setting.workload)}, {each.setting.where}, "
        f"{each.setting.what}: **not kept in {each.broken} of {many(each.judged, 'trial')}**"
        for each in not_kept(table)
    ]
    return [Heading("Policies that were not kept"), Points(points)] if points else []


def kept(settings: Sequence[Setting], table: Table) -> list[Block]:
    """Of the set-ups of one table; nothing where no policy other than gangs was asked for."""
    rows = []
    for setting in settings:
        for name, found in table[setting].items():
            if judged := found.judged:
                whole = sum(value == 1 for value in judged)
                row = [setting.short, f"`{name}`", str(len(judged)), str(whole)]
                rows.append([*row, interval(estimate(found.kept, mean), digits=2), number(min(judged), 2)])
    if not rows:
        return []
    return [
        Heading("Whether the policy was kept", 3),
        Said(
            "In how many trials the policy was kept, judged from where the watcher saw the pods: by every group, or "
            "all the time; and the part of the groups, or of the time, for which it was. Pods that know of no policy "
            "need not keep it."
        ),
        Tabular(["gangs", "approach", "judged", "kept", "mean part", "least"], rows, TRIALS, 2),
    ]
