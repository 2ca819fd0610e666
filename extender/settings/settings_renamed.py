"""Renamed settings: an old name is still accepted, with a warning, for some versions.

To rename one: give the field of `settings.Settings` its new name, and add an entry here. Remove the entry in the
version that it names. A test fails for an entry that stays longer, or that ends earlier than promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

UNDERSTOOD_FOR = 2
"""Minor versions after the renaming in which the old name is accepted, at least."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """`to`: the name since version `since`. From version `until` on, the old name is refused.

    Both versions are `major.minor`.
    """

    to: str
    since: str
    until: str


_NEW_NAMES = {
    "saves_room": "backfill_reservation",
    "saved_share": "backfill_max_share",
    "saved_seconds": "backfill_max_seconds",
    "gang_passes": "backfill_after_skips",
    "gang_patience_seconds": "backfill_after_seconds",
    "evicts_parts": "evict_partial_gangs",
    "preempts_for_gangs": "gang_preemption",
    "preempts_other_schedulers": "preempt_foreign_pods",
    "gather_limit": "expected_members_limit",
    "management_calls_per_second": "api_qps",
    "management_burst": "api_burst",
    "management_wait_seconds": "api_queue_seconds",
    "management_memory_share": "api_memory_limit_share",
    "body_limit_bytes": "max_body_bytes",
    "bodies_limit_bytes": "max_inflight_body_bytes",
    "ephemeral_keys_per_node": "max_ephemeral_resources_per_node",
}
RENAMED: Mapping[str, Renamed] = {old: Renamed(new, since="0.1", until="0.4") for old, new in _NEW_NAMES.items()}
"""By the old name."""


class BothNames(ValueError):
    """A setting has its old and its new name in one file."""


def by_new_names(values: Mapping[str, Any], heard: Callable[[str], None]) -> dict[str, Any]:
    """The same settings by their new names. `heard` gets a text per old name. Raises BothNames."""
    found = dict(values)
    for old in [name for name in values if name in RENAMED]:
        new = RENAMED[old].to
        if new in values:
            raise BothNames(f"{old} and {new} are the same setting: remove {old}, the old name")
        found[new] = found.pop(old)
        heard(f"{old} is named {new} since version {RENAMED[old].since}, and is refused from {RENAMED[old].until} on")
    return found


def as_promised(renamed: Renamed) -> bool:
    """Whether the old name is accepted for as long as promised."""
    (since_major, since), (until_major, until) = version(renamed.since), version(renamed.until)
    return until_major > since_major or until - since > UNDERSTOOD_FOR


def version(text: str) -> tuple[int, int]:
    """Of `major.minor`, with or without more."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
