"""A kind of ours: what everything in this room needs to know of one, and of one object of it.

EphemeralResource is one. Another costs a schema (`adapters.kubernetes.schema`) and a reconcile function, which says
what of an object is in force. Must not know what any kind is for, nor how objects are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar


class Named(Protocol):
    """What addresses an object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class Identity(NamedTuple):
    """Namespace and name of an object, and nothing else that its kind may count as part of a name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def identity(name: Named) -> Identity:
    return name if isinstance(name, Identity) else Identity(name.namespace, name.name)


@dataclass(frozen=True, slots=True)
class OurObject:
    """What is known of an object of any kind. Times are seconds since the epoch."""

    name: Named
    _: KW_ONLY
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    observed_generation: int = 0
    said_unready: bool = False
    """Whether its status says that it is not ready."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    """Who has to let go of it before it is gone, once it is being deleted."""
    mark: str = ""
    """That of the last write of ours (`marks`); empty if there was none."""
    expires_at: float | None = None
    """From `ports.FIRST_MOMENT` to `LAST_MOMENT`; None where it has no time to live."""


O = TypeVar("O", bound=OurObject)  # noqa: E741
O_contra = TypeVar("O_contra", bound=OurObject, contravariant=True)
F = TypeVar("F")
C = TypeVar("C")
S = TypeVar("S", bound="Status")
C_contra = TypeVar("C_contra", contravariant=True)
S_contra = TypeVar("S_contra", bound="Status", contravariant=True)
Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Status:
    """What the Ready condition of an object says. `reason` is one CamelCase word, `message` is for people."""

    ready: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Standing(Status, Generic[Spec]):
    """What the status of a `Declared` object says. `in_force`: the spec that is, which outlives us there. `counts`: the
    numbers that its kind tells besides, by the name of the field."""

    in_force: Spec | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotInForce:
    """Why an object is not in force. `keeps_former`: what was in force of it before still is. `field`: the part of the
    spec at fault, where it is one."""

    reason: str
    message: str
    keeps_former: bool = True
    field: str = "spec"


@dataclass(frozen=True, slots=True)
class KindOfOurs(Generic[O, F]):
    """`name` is for messages and logs. `reconcile`: what is in force of an object, or why nothing is.

    It is pure: it gets the object, and what is in force of it so far (None: nothing). After a restart that is what
    `last_good` finds in the object: as it was when its status last said so. Where `holds_until_gone`, what is
    in force of an object stays so while finalizers hold it, and reconcile is asked about it then too.
    """

    name: str
    reconcile: Callable[[O, F | None], F | NotInForce]
    last_good: Callable[[O], O | None] = lambda item: None
    holds_until_gone: bool = False


@dataclass(frozen=True, slots=True)
class Declared(OurObject, Generic[Spec]):
    """An object of a kind whose whole meaning is its spec; that is None where `problem` says what is wrong with it."""

    name: Identity
    spec: Spec | None
    problem: str = ""
    """Why the spec cannot be understood, in words for its author."""
    in_force: Spec | None = None
    """The spec that its status says is in force."""
    said: str = ""
    """The message of its Ready condition."""


def declared(
    name: str, reconcile: Callable[[Declared[Spec], F | None], F | NotInForce]
) -> KindOfOurs[Declared[Spec], F]:
    """A kind whose objects are `Declared`: `reconcile` is asked about those that have a spec, and no problem."""

    def decide(item: Declared[Spec], former: F | None) -> F | NotInForce:
        return NotInForce("Invalid", item.problem) if item.problem else reconcile(item, former)

    def last_good(item: Declared[Spec]) -> Declared[Spec] | None:
        return None if item.in_force is None else replace(item, spec=item.in_force, problem="")

    return KindOfOurs(name, decide, last_good)


@dataclass(frozen=True, slots=True)
class Replacement(Generic[Spec]):
    """The change of a `Declared` object's spec from one to another. `before` is None where it is not understood."""

    before: Spec | None
    after: Spec


class ObjectStore(Protocol[O, C_contra, S_contra]):
    """The objects of one kind in the API server.

    Every call answers the object as stored; raises Unavailable, Gone, Occupied, Refused. One that names a version is
    Occupied where the object is at another.
    """

    async def get(self, name: Named) -> O: ...

    async def create(self, item: O, *, dry_run: bool = False) -> O: ...

    async def merge(
        self,
        name: Named,
        change: C_contra,
        *,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> O:
        """One patch of the spec. The mark stays if none is given."""
        ...

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> O:
        """The object has this mark; its spec stays."""
        ...

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> O | None:
        """It is gone: None; or it is being deleted, and finalizers hold what is answered.

        Nothing if it was not there; if `there`, that is Gone.
        """
        ...

    async def set_status(self, item: O, status: S_contra) -> O:
        """Its status says this, of the generation of `item`. Gone if it is not that very object any more."""
        ...
