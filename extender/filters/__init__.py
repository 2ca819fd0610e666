"""The policies that come with Escher: which nodes pods may use, which are better, and the order.

A policy is one file with one class, of the shapes of `core.policy`. Name a new one in POLICIES here, in the setting
`policies` if it comes from outside, or as an entry point (`extender.registry`). They read the ledger, never change it.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.core.policy import Policy
from extender.filters import escher_policies
from extender.filters.ephemeral_fit import EphemeralFit
from extender.filters.reservation_guard import ReservationGuard
from extender.filters.retired import Retired
from extender.filters.share_order import ShareOrder
from extender.filters.tenancy import TenantUnits

POLICIES: tuple[Callable[[], Policy], ...] = (
    TenantUnits,
    EphemeralFit,
    ReservationGuard,
    Retired,
    ShareOrder,
)
"""In filter order, after the gang's policy, whose plans `extender.app.cache.cache` supplies.

Each filter sees only nodes that earlier ones passed."""


def made() -> list[Policy]:
    """One instance of each policy, for one `Scheduler`."""
    return [*(policy() for policy in POLICIES), *escher_policies.made()]
