"""Hosted: builds and changes the ESL of an EscherPolicy that applications ask. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from extender.core.names import DOMAIN
from extender.core.policies import policy_types
from extender.core.policies.policy_types import Hosted, Shares
from extender.esl.base import Effect
from extender.esl.gangs.gang_spec import Approach
from extender.esl.policies.fair_share import FairShare, User
from extender.esl.policies.queue import Queue
from extender.esl.policies.signal import Signal
from extender.esl.runtime.policy_esl import PolicyEsl


def made(namespace: str, name: str, parameters: Hosted, domain: str = DOMAIN) -> PolicyEsl:
    """The ESL, before its first event. Raises ValueError for parameters or a name without sense.

    The error text begins with the parameter, if one is at fault."""
    where = {"namespace": namespace, "domain": domain, "scheduler": Approach.EXTENDER.value}
    esl: PolicyEsl
    match parameters:
        case policy_types.Queue(capacity=capacity):
            return Queue(name, capacity=capacity, **where)
        case policy_types.Signal():
            esl = Signal(name, after={}, **where)
            # A success is remembered as long as the policy exists, not only while a task waits for it.
            esl.linger = math.inf
        case Shares():
            esl = FairShare(name, **where)
    change(esl, parameters, 0.0)
    return esl


def change(esl: PolicyEsl, parameters: Hosted, now: float) -> list[Effect]:
    """Gives the ESL new parameters of its own type; returns the effects. Raises as `made`."""
    match esl, parameters:
        case Queue(), policy_types.Queue(capacity=capacity):
            return esl.resize(capacity, now)
        case Signal(), policy_types.Signal(successors, succeeded):
            with _about("parameters.successors", (each.name for each in successors)):
                effects = esl.reorder({each.name: each.after for each in successors}, now)
            return [*effects, *(effect for task in succeeded for effect in esl.succeeded(task, now))]
        case FairShare(), Shares(users):
            with _about("parameters.users", (each.name for each in users)):
                said = {each.name: User(each.weight, each.parent or None, each.idle) for each in users}
                return esl.set_users(said, now=now)
    raise TypeError(f"{type(esl).__name__} does not implement {type(parameters).__name__}")


@contextmanager
def _about(parameter: str, names: Iterable[str]) -> Iterator[None]:
    """Prefixes each ValueError of the block with the parameter; rejects a name given twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{parameter}: {twice[0]!r} is listed twice; merge the two entries")
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{parameter}: {error}") from error
