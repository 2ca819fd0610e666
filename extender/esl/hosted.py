"""Hosted: the ESL of an EscherPolicy that applications ask, made from its parameters, and changed to others.

Pure. Must not know who asks, nor where the policy is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from extender.core import policy_types
from extender.core.names import DOMAIN
from extender.core.policy_types import Hosted, Shares
from extender.esl.base import Effect
from extender.esl.fair_share import FairShare, User
from extender.esl.gang_spec import Approach
from extender.esl.policy_esl import PolicyEsl
from extender.esl.queue import Queue
from extender.esl.signal import Signal


def made(namespace: str, name: str, parameters: Hosted, domain: str = DOMAIN) -> PolicyEsl:
    """The ESL, before it has been told anything. Raises ValueError where the parameters make no sense together, or
    with that name; its text begins with the parameter, if one is at fault."""
    where = {"namespace": namespace, "domain": domain, "scheduler": Approach.EXTENDER.value}
    esl: PolicyEsl
    match parameters:
        case policy_types.Queue(capacity=capacity):
            return Queue(name, capacity=capacity, **where)
        case policy_types.Signal():
            esl = Signal(name, after={}, **where)
            # What has succeeded is known as long as the policy is there, and not only while somebody waits for it.
            esl.linger = math.inf
        case Shares():
            esl = FairShare(name, **where)
    change(esl, parameters, 0.0)
    return esl


def change(esl: PolicyEsl, parameters: Hosted, now: float) -> list[Effect]:
    """The ESL, which was made for the same type, goes by these from now on; what is to be done for that. Raises as
    `made`."""
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
    raise TypeError(f"{type(esl).__name__} does not carry out {type(parameters).__name__}")


@contextmanager
def _about(parameter: str, names: Iterable[str]) -> Iterator[None]:
    """Whatever is wrong there is said to be wrong with that parameter; none of the names may be there twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{parameter}: {twice[0]!r} is there twice; say all of it in one place")
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{parameter}: {error}") from error
