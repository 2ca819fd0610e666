"""Hosted: the ESL of an EscherPolicy that applications ask, made from its parameters, and changed to others.

Pure. Must not know who asks, nor where the policy is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

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
    match parameters:
        case policy_types.Queue(capacity=capacity):
            return Queue(name, capacity=capacity, **where)
        case policy_types.Signal():
            signal = Signal(name, after=_after(parameters), **where)
            # What has succeeded is known as long as the policy is there, and not only while somebody waits for it.
            signal.linger = math.inf
            _tell(signal, parameters, 0.0)
            return signal
        case Shares():
            fair = FairShare(name, **where)
            fair.set_users(_users(parameters), now=0.0)
            return fair


def change(esl: PolicyEsl, parameters: Hosted, now: float) -> list[Effect] | None:
    """The ESL goes by these from now on, and what is to be done for that; None where it is one of another type. Raises
    as `made`."""
    match esl, parameters:
        case Queue(), policy_types.Queue(capacity=capacity):
            return esl.resize(capacity, now)
        case Signal(), policy_types.Signal():
            return [*_tell(esl, parameters, now), *esl.reorder(_after(parameters), now)]
        case FairShare(), Shares():
            return esl.set_users(_users(parameters), now=now)
    return None


def _tell(signal: Signal, parameters: policy_types.Signal, now: float) -> list[Effect]:
    return [effect for task in parameters.succeeded for effect in signal.succeeded(task, now)]


def _after(parameters: policy_types.Signal) -> dict[str, tuple[str, ...]]:
    _require_once("parameters.successors", (each.name for each in parameters.successors))
    return {each.name: each.after for each in parameters.successors}


def _users(parameters: Shares) -> dict[str, User]:
    _require_once("parameters.users", (each.name for each in parameters.users))
    return {each.name: User(each.weight, each.parent or None, each.idle) for each in parameters.users}


def _require_once(field: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{field}: {twice[0]!r} is there twice; say all of it in one place")
