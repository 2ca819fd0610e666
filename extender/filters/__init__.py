"""Policies that come with Escher: which nodes a pod may be on, which are better, and who goes first.

A policy is one file with one class, of the shapes of `core.policy`. To add one, write it and name it in POLICIES here;
one that is not ours is named in the setting `policies`, or offered as an entry point (see `extender.registry`).
They read the ledger and never change it; they must not know clocks, networks or kube-scheduler's wire.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.policy import Policy
from extender.filters import escher_policies
from extender.filters.anti_affinity import AntiAffinity
from extender.filters.ephemeral_fit import EphemeralFit
from extender.filters.preference import Preference
from extender.filters.reservation_guard import ReservationGuard
from extender.filters.share_order import ShareOrder
from extender.filters.tenancy import TenantUnits

POLICIES: tuple[Callable[[], Policy], ...] = (
    TenantUnits,
    EphemeralFit,
    ReservationGuard,
    AntiAffinity,
    Preference,
    ShareOrder,
)
"""In the order in which they are asked; each filter sees only the nodes that the ones before it let pass. The gang's
policy (`gang`) is asked before them: it is made with what it plans on, see `extender.app.cache.cache`."""


def made() -> list[Policy]:
    """One of each, for one `Scheduler`."""
    return [*(policy() for policy in POLICIES), *escher_policies.made()]
