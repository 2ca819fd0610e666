"""Plan: checks a run's options before it starts. A test compares its user names with Locust's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from extender.shipped.errors import WrongUse
from lab.controlplane.nodes import MOST_NODES
from loadtests.load.shapes import SECONDS, SHAPES, STEADY, seconds_of

VERBS = ("Scheduler", "Sampling", "Ephemeral", "Gangs", "WholeNodes", "Scorer", "Preemptor", "Binder")
PODS = ("OrdinaryPods", "EphemeralPods", "GangPods")
MANAGEMENT = ("Policies", "Resources", "WhatIf", "Explainer")
GROUPS = {"verbs": VERBS, "pods": PODS, "management": MANAGEMENT}
EVERYBODY = (*VERBS, *PODS, *MANAGEMENT)
TAKING_ROOM = ("Ephemeral", "Gangs")
"""Users that reserve room for pods that exist nowhere, until the service drops them."""
MOST_USERS = 1000
MOST_RATE = 10_000
MOST_MINUTES = 30 * 24 * 60


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`seconds` of load, with at most `rate` verbs a second of all users (0: without limit).

    `host`: a running service, used for its verbs only; without it a cluster is started, `real` or embedded.
    `reference`: "1" starts the plain extender in Go, else its URL. `page`: Locust's own web page, where load is started
    and stopped.
    """

    users: int = 12
    rate: int = 0
    seconds: float = SECONDS[STEADY]
    shape: str = STEADY
    who: tuple[str, ...] = (*PODS, *MANAGEMENT)
    nodes: int = 100
    real: bool = False
    host: str = ""
    reference: str = ""
    page: bool = False

    @property
    def cluster(self) -> str:
        if self.host:
            return f"the service at {self.host}"
        return f"{'a real control plane' if self.real else 'the embedded cluster'} of {self.nodes} nodes"


def plan_of(
    *,
    users: str = "",
    rate: str = "",
    time: str = "",
    minutes: str = "",
    shape: str = "",
    who: Sequence[str] = (),
    nodes: str = "",
    real: bool = False,
    host: str = "",
    reference: str = "",
    page: bool = False,
) -> Plan:
    """Returns the plan of a command line, where "" is an option not given. Raises WrongUse."""
    shape = shape or STEADY
    if shape not in SECONDS:
        raise WrongUse(f"--shape is {shape!r}; there are {', '.join(SECONDS)}")
    if page and shape in SHAPES:
        raise WrongUse(
            f"--shape is {shape!r} with --page; on Locust's page the load is as it is set there: leave one out"
        )
    if time and minutes:
        raise WrongUse(f"--time is {time!r} and --minutes is {minutes!r}: leave one out")
    if minutes:
        time = f"{_number('--minutes', minutes, 0, MOST_MINUTES)}m"
    try:
        seconds = seconds_of(time) if time else SECONDS[shape]
    except ValueError as error:
        raise WrongUse(f"--time {error}") from None
    usual = Plan()
    found = Plan(
        users=_number("--users", users, usual.users, MOST_USERS),
        rate=_number("--rate", rate, usual.rate, MOST_RATE),
        seconds=seconds,
        shape=shape,
        who=_who(who) or (("Scheduler",) if host or reference else usual.who),
        nodes=_number("--nodes", nodes, usual.nodes, MOST_NODES),
        real=real,
        host=_url("--host", host),
        reference=reference if reference in ("", "1") else _url("--reference", reference),
        page=page,
    )
    needing = [each for each in found.who if each not in VERBS]
    if host and needing:
        raise WrongUse(
            f"--host is {host!r}, and {', '.join(needing)} need a cluster of their own: leave out --host, or ask for"
            f" {', '.join(VERBS)}"
        )
    if (takers := [each for each in found.who if each in TAKING_ROOM]) and (
        placing := [each for each in found.who if each in PODS]
    ):
        raise WrongUse(
            f"--who: {', '.join(takers)} keep room for pods that exist nowhere, which {', '.join(placing)} would lack:"
            " ask for the one or the other"
        )
    if found.rate and not any(each in VERBS or each in PODS for each in found.who):
        raise WrongUse(
            f"--rate is {rate!r}, and {', '.join(found.who)} call no verbs: ask for {', '.join(PODS)} as well"
        )
    if host and (real or nodes):
        raise WrongUse(f"--host is {host!r}, and no cluster is started for it: leave out --real and --nodes")
    return found


def _who(said: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for each in said:
        if each not in GROUPS and each not in EVERYBODY:
            known = ", ".join((*GROUPS, *EVERYBODY))
            raise WrongUse(f"--who is {each!r}; there are {known}")
        found += GROUPS.get(each, (each,))
    return tuple(dict.fromkeys(found))


def _number(option: str, said: str, usual: int, most: int) -> int:
    if not said:
        return usual
    if not (said.isascii() and said.isdigit() and 1 <= int(said) <= most):
        raise WrongUse(f"{option} is {said!r}; write a number from 1 to {most}")
    return int(said)


def _url(option: str, said: str) -> str:
    try:
        parts = urlsplit(said)
        good = not said or (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        good = False
    if not good:
        raise WrongUse(f"{option} is {said!r}; write a URL, such as http://127.0.0.1:8080")
    return said.rstrip("/")
