"""Rest: when nothing disturbs any more, whoever could run runs; asked of the API server as `loadtests.room` reckons.

Must not know the ledger.
"""

from __future__ import annotations

from kubesim.kinds import NODE, POD
from kubesim.store import Store
from loadtests.life.works import POD_GROUP
from loadtests.pods import OURS
from loadtests.reading import group_key, scheduler_of
from loadtests.room import waiting_though_there_is_room


def that_could_run(store: Store, *, groups_installed: bool) -> list[str]:
    """Gangs and pods of ours that are pending and fit into what is free, in words."""
    groups = (
        {group_key(each): each["spec"]["minMember"] for each in store.list(POD_GROUP)} if groups_installed else None
    )
    return waiting_though_there_is_room(
        store.list(NODE),
        store.list(POD),
        groups=groups,
        asked=lambda pod: scheduler_of(pod) in OURS,
        bare_ones_count=True,
    )
