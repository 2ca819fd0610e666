"""Availability: runs one of several replicas of the service, which elect one leader.

    follow: nodes held, connections open, verbs 503 --lease won--> lead: the application runs --lease lost--> end

A take-over is a restart that rebuilds everything, but a faster one. The process runs, its connections are open, and it
has the nodes, which are the largest objects. It lists pods and Escher's objects after it has won the lease, because the
writes of the former leader are final then. Nothing is written that might arrive after another replica could lead
(`Permit`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter, Gauge

from extender.adapters.http.server.asgi import Service
from extender.adapters.http.server.readiness import Standing
from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.election.leader_lease import LeaderLease
from extender.adapters.kubernetes.election.leader_slice import LeaderSlice
from extender.adapters.kubernetes.reflectors.held_objects import HeldObjects
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.memory import Memory, unlimited
from extender.app.admin.leader_election import LeaderElection, LeaseLost
from extender.app.leader_health import LeaderHealth
from extender.bootstrap import Application, Cluster
from extender.core.cluster import Node
from extender.core.election import Election, Terms
from extender.kube.client.fenced import Fenced
from extender.kube.client.requests import Requests
from extender.kube.errors import Unavailable
from extender.runtime import MACHINE, Runtime
from extender.settings.settings import BadSettings, Settings

if TYPE_CHECKING:
    from extender.adapters.tracing.tracing import Tracing

_log = structlog.get_logger(__name__)

_WARM_CONNECTIONS = 64
_AWAY_LEASES = 8
"""Lease durations for which a leader that could not work stays away."""
_OTHERS_HAVE_LEASES = 2
"""Lease durations in which another replica that can lead takes the lease."""
_HANGS_LEASES = 8
"""Lease durations after which a leader whose event loop does not turn stops renewing its lease."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica: its unique `name`, `host` and `port` of its verbs, and the lease's `namespace`."""

    name: str
    host: str
    port: int
    namespace: str
    scheme: str = "http"

    @classmethod
    def of(cls, settings: Settings, port: int, environment: Mapping[str, str], unique: str) -> Candidate:
        """This process. `port`: where it listens; `unique`: a unique text. Raises BadSettings."""
        name = environment.get("POD_NAME") or socket.gethostname()
        namespace = settings.lease_namespace or namespace_of_pod(environment)
        if not namespace:
            raise BadSettings(
                "lease_namespace: it is not set, and neither POD_NAMESPACE nor a service account says in which "
                "namespace this runs; set it to the one in which the Lease is to be"
            )
        host = environment.get("POD_IP") or settings.host
        if settings.leader_service is not None and (problem := _unreachable(host)):
            raise BadSettings(
                f"leader_service = {settings.leader_service!r}: no Service can lead to {host!r}, for it is {problem}; "
                "set the environment variable POD_IP to the pod's address (status.podIP)"
            )
        scheme = "https" if settings.tls_certificate is not None else "http"
        return cls(f"{name}-{unique[:8]}", host, port, namespace, scheme)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Permit:
    """`connection.Fence`: allows a write if this replica leads until the write surely ends."""

    def __init__(self, terms: Terms, leads: Callable[[], bool]) -> None:
        self._terms = terms
        self._leads = leads

    @property
    def seconds(self) -> float:
        return self._terms.request

    def check(self) -> None:
        if not self._leads():
            raise Unavailable("this replica does not lead: nothing is written")


class Pulse:
    """Whether an event loop turns in `within` seconds, for a thread that may not wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], within: float) -> None:
        self._loop = loop
        self._clock = clock
        self._within = within
        self._asked: float | None = None
        """When it was asked to turn; None if it has turned since."""

    def beats(self) -> bool:
        now = self._clock()
        if self._asked is None:
            self._asked = now
            self._loop.call_soon_threadsafe(self._turned)
        return now - self._asked < self._within

    def _turned(self) -> None:
        self._asked = None


class Replica:
    """One replica; call `run`.

    `election`: the connection for the lease only. `elsewhere` runs the lease's work on a loop of its own, so that this
    loop delays no renewal; by default on this loop. `connect` opens the other connection, whose writes need the permit.
    `reviews`: the connection that checks callers and their rights, also on followers; by default the other one.
    """

    def __init__(
        self,
        candidate: Candidate,
        election: Requests,
        connect: Callable[[Permit], Cluster],
        settings: Settings,
        world: Runtime = MACHINE,
        *,
        elsewhere: Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]] = asyncio.ensure_future,
        reviews: Requests | None = None,
        open_files: int | None = None,
        memory: Callable[[], Memory | None] = unlimited,
        tracing: Tracing | None = None,
    ) -> None:
        clock, terms = world.clock, Terms.of(settings.lease_seconds)
        # A late renewal harms no replica, so it may take as long as it can be of use.
        patience = terms.permit - terms.renew_every
        lease = LeaderLease(election, candidate.namespace, settings.lease_name, within=patience, now=world.clock.now)
        self._elsewhere = elsewhere
        self._won = asyncio.Event()
        here = asyncio.get_running_loop()
        self.leading = LeaderElection(
            Election(candidate.name, candidate.url, terms),
            lease,
            clock.steady,
            won=lambda: here.call_soon_threadsafe(self._won.set),
            turns=Pulse(here, clock.steady, _HANGS_LEASES * terms.lease).beats,
        )
        permit = Permit(terms, lambda: self.leading.leads)
        self._use = LeaderHealth(
            terms.lease,
            self._ask,
            lambda: self.application.ready(),
            lambda: self.application.is_patient(),
            clock.steady,
        )
        self._connection = Fenced(connect(permit), permit, self._use.heard)
        self._stays_away = False
        self.application = Application(
            self._connection, settings, world, reviews=reviews, open_files=open_files, memory=memory, tracing=tracing
        )
        self._candidate = candidate
        self._settings = settings
        elapsed = asyncio.get_running_loop().time
        self._nodes: HeldObjects[Node] = HeldObjects(lambda node: node.name)
        follow = partial(Reflector, self._connection, clock=elapsed, chance=world.chance)
        self._nodes_followed: Reflector[Node] = follow(kinds.nodes(), self._nodes)
        registry = self.application.registry
        Gauge("escher_leading", "Whether this replica decides", registry=registry).set_function(
            lambda: float(self.leading.leads)
        )
        self._losses = Counter("escher_lease_lost", "Leases lost while leading", registry=registry)

    def standing(self) -> Standing:
        record = self.leading.leader
        warm = self._nodes_followed.synced.is_set() and not self._stays_away
        return Standing(self.leading.leads, warm, record.holder, record.at)

    def ready(self) -> bool:
        """Whether this replica answers verbs."""
        return self.leading.leads and self.application.ready()

    def asgi(self) -> Service:
        return self.application.asgi(self._settings, self.standing)

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Follows, and leads after it has won the lease, until cancelled. Then `beside` also runs.

        Raises LeaseLost, and the error of a part that failed.
        """
        electing, following, won = map(asyncio.ensure_future, (self._stand(), self._follow(), self._won.wait()))
        works: list[asyncio.Future[Any]] = [electing, following, won]
        try:
            await _first_of(*works)
            if won.done():
                following.cancel()
                if self._nodes_followed.current:
                    # The application's watch continues at the version that this one has reached.
                    self.application.begin_with_nodes(self._nodes.objects, self._nodes_followed.version)
                running = self.application.run(self._route(), *beside)
                beside = ()
                works += map(asyncio.ensure_future, (running, self._be_of_use()))
                await _first_of(electing, *works[-2:])
                if self._stays_away:
                    await works[-1]
        except LeaseLost as error:
            self._losses.inc()
            _log.warning("the lease is lost: nothing is decided here any more", why=str(error))
            raise
        finally:
            for each in beside:
                each.close()
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def resign(self) -> None:
        """Stops leading, waits for its last writes, and gives the lease back."""
        await self._give_back(in_vain=False)

    async def _give_back(self, *, in_vain: bool) -> None:
        if await self._elsewhere(self.leading.resign()):
            await self._connection.quiet()
            await self._elsewhere(self.leading.give_back(in_vain=in_vain))

    async def _be_of_use(self) -> None:
        """Gives the lease back if this leader cannot work; stays away. Raises LeaseLost then."""
        why = await self._use.lasts(self.leading.leader.in_vain, self.leading.proved)
        self._stays_away = True
        _log.warning("this replica cannot work: it gives the lease back, and stays away for a while", why=why)
        await self._give_back(in_vain=True)
        lease = self._settings.lease_seconds
        for leases in range(1, _AWAY_LEASES + 1):
            await asyncio.sleep(lease)
            vacant = leases >= _OTHERS_HAVE_LEASES and await self._elsewhere(self.leading.is_vacant())
            if vacant and await self._use.answers():
                # No other replica leads, and this one could work again.
                break
        raise LeaseLost(f"{why}; another may be able to")

    async def _ask(self) -> None:
        """Sends a small request that all work depends on. Raises Unavailable, Refused."""
        await self._connection.request("GET", "/api/v1/pods?limit=1", within=self._settings.lease_seconds)

    async def _stand(self) -> None:
        """Stands for election once the nodes are listed, so that it could take over at once."""
        await self._nodes_followed.synced.wait()
        await self._elsewhere(self.leading.run())

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes_followed.run())
            group.create_task(self._connection.keep_warm(_WARM_CONNECTIONS))

    async def _route(self) -> None:
        """Makes the Service lead to this replica."""
        service, candidate = self._settings.leader_service, self._candidate
        if service is None:
            return
        name = f"{self._settings.lease_name}-leader"
        where = (candidate.host, candidate.port, self._settings.leader_service_port)
        await LeaderSlice(self._connection, candidate.namespace, name, service, *where).run()


async def _first_of(*works: asyncio.Future[Any]) -> None:
    """Returns when the first of them has ended. Raises its error."""
    await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    for each in works:
        if each.done():
            each.result()


def namespace_of_pod(environment: Mapping[str, str]) -> str:
    """The namespace of this process if it runs in a pod; otherwise empty."""
    if named := environment.get("POD_NAMESPACE"):
        return named
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return ""


def _unreachable(host: str) -> str:
    """Why other machines cannot reach this address; empty if no reason is known."""
    try:
        address = ip_address(host)
    except ValueError:
        return "no address"
    return "of this machine alone" if address.is_loopback else "no single one" if address.is_unspecified else ""
