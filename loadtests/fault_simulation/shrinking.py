"""Shrinking: finds few faults, and then few works, with which a plan still fails in the same way.

It uses delta debugging: it leaves out all, then halves, and so on to single ones, while that helps. The caller says
what failing is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from loadtests.fault_simulation.plan import Plan

T = TypeVar("T")


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A plan that also fails, and not without any single part. `fails` is called for each try."""
    fewer = _with_fewest_works(_with_fewest_faults(plan, fails), fails)
    return plan if fewer == plan else shrunk(fewer, fails)


def _with_fewest_faults(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    return replace(plan, faults=fewest(plan.faults, lambda faults: fails(replace(plan, faults=faults))))


def _with_fewest_works(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    return replace(plan, works=fewest(plan.works, lambda works: fails(replace(plan, works=works))))


def fewest(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Items, in order, that still fail, and not without any single one. All together must fail."""
    left = tuple(items)
    size = len(left)
    while left and size:
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if fails(fewer):
                left = fewer
                break
        else:
            size //= 2
        size = min(size, len(left))
    return left
