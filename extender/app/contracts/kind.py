"""A kind of Escher's: what the modules here need to know of a kind and of one object of it.

EphemeralResource is one. Another costs a schema (`adapters.kubernetes.codecs.schema`) and a reconcile function, which
says what of an object is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar


class Named(Protocol):
    """The address of an object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class Identity(NamedTuple):
    """Namespace and name of an object, without what its kind may count as part of a name."""

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
    """The finalizers that must go before the object is gone, once it is being deleted."""
    mark: str = ""
    """The mark of Escher's last write (`write_ids`); empty if there was none."""
    expires_at: float | None = None
    """From `ports.FIRST_MOMENT` to `LAST_MOMENT`; None: it has no time to live."""


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
    """The Ready condition of an object. `reason` is one CamelCase word, `message` is for people."""

    ready: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Standing(Status, Generic[Spec]):
    """The status of a `Declared` object. `counts`: the kind's other numbers, by name of the field.

    `in_force`: the spec that is in force; the status keeps it while Escher does not run."""

    in_force: Spec | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotInForce:
    """Why an object is not in force. `field`: the part of the spec at fault, if it is one part.

    `keeps_former`: what was in force of the object before still is."""

    reason: str
    message: str
    keeps_former: bool = True
    field: str = "spec"


@dataclass(frozen=True, slots=True)
class KindOfOurs(Generic[O, F]):
    """`name`: for messages and logs. `reconcile`: what is in force of an object, or why nothing is.

    It is pure: it gets the object, and what is in force of it so far (None: nothing). After a restart that is what
    `last_good` finds in the object: as it was when its status last said so. If `holds_until_gone`, what is in force
    stays so while finalizers hold the object, and `reconcile` is called then too."""

    name: str
    reconcile: Callable[[O, F | None], F | NotInForce]
    last_good: Callable[[O], O | None] = lambda item: None
    holds_until_gone: bool = False


@dataclass(frozen=True, slots=True)
class Declared(OurObject, Generic[Spec]):
    """An object whose whole meaning is its spec; that is None if `problem` says what is wrong."""

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
    """A kind of `Declared` objects; `reconcile` is called for those with a spec and no problem."""

    def decide(item: Declared[Spec], former: F | None) -> F | NotInForce:
        return NotInForce("Invalid", item.problem) if item.problem else reconcile(item, former)

    def last_good(item: Declared[Spec]) -> Declared[Spec] | None:
        return None if item.in_force is None else replace(item, spec=item.in_force, problem="")

    return KindOfOurs(name, decide, last_good)


@dataclass(frozen=True, slots=True)
class Replacement(Generic[Spec]):
    """A change of a `Declared` object's spec. `before` is None if it was not understood."""

    before: Spec | None
    after: Spec


class ObjectStore(Protocol[O, C_contra, S_contra]):
    """The objects of one kind in the API server.

    Every call returns the object as stored; raises Unavailable, Gone, Occupied, Refused. A call that names a version
    raises Occupied if the object is at another."""

    async def get(self, name: Named) -> O: ...

    async def create(self, item: O, *, dry_run: bool = False) -> O: ...

    async def merge(
        self, name: Named, change: C_contra, *, mark: str = "", if_version: str | None = None, dry_run: bool = False
    ) -> O:
        """Patches the spec once. The mark stays if none is given."""
        ...

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> O:
        """Sets the mark of the object; its spec stays."""
        ...

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> O | None:
        """Deletes the object. Returns None, or the object if finalizers still hold it.

        If the object does not exist, returns None; with `there`, raises Gone."""
        ...

    async def set_status(self, item: O, status: S_contra) -> O:
        """Writes the status of `item`'s generation. Raises Gone if that very object is gone."""
        ...
