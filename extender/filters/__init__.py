"""Policies on nodes: each says, for one pod, which nodes it may be on, and why not on the others.

A filter is one file with one class of the shape of `base.Filter`. To add one, write it and name it in FILTERS here.
They read the ledger and never change it; they must not know clocks, networks or kube-scheduler's wire.
"""

from __future__ import annotations

from extender.filters.base import Filter, Rejection
from extender.filters.ephemeral_fit import EphemeralFit
from extender.filters.gang import GangFilter
from extender.filters.reservation_guard import ReservationGuard

__all__ = ["FILTERS", "Filter", "Rejection"]

FILTERS: tuple[Filter, ...] = (GangFilter(), EphemeralFit(), ReservationGuard())
"""In the order in which they are asked; each sees only the nodes that the ones before it let pass."""
