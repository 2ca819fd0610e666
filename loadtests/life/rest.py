"""Rest: finds pods that could run but are pending, by the objects and by `loadtests.shared.room`."""

from __future__ import annotations

from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import NODE, POD
from loadtests.life.works import POD_GROUP
from loadtests.shared.pods import OURS
from loadtests.shared.reading import group_key, scheduler_of
from loadtests.shared.room import waiting_though_there_is_room


def that_could_run(store: Store, *, groups_installed: bool) -> list[str]:
    """Descriptions of the service's pending gangs and pods that fit into the free room."""
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
