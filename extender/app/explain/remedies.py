"""Remedies: what may help a pod or gang that waits for room, each as a change to simulate.

They come from what is in the way: nodes by rule, matching EscherPolicies, resident pods. `remedy_search` tries them: it
is enough that one might help. What has a number (a quorum) is a ladder; the lowest rung that helps is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TypeVar

from extender.app.cache.cache import Cache
from extender.app.cache.claims import is_claim
from extender.app.contracts.explanation import Remedy
from extender.app.contracts.messages import amount
from extender.app.contracts.simulation_changes import (
    Added,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    SimulationChange,
    Uncordoned,
)
from extender.app.explain.node_groups import ABSENT, CORDONED, Group, Judged, NodeGroups
from extender.app.explain.policy_details import PolicyNumbers
from extender.core.cluster import Node, Pod
from extender.core.fit.fit import asked_of, copies
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.ledger import Holder, Holding, Row
from extender.core.names import EphemeralName, in_domain
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation, DataLocality, Parameters
from extender.kube.names import CPU, MEMORY, NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts

T = TypeVar("T")
_FEW = 3
_MOST_ENDING = 8
_MOST_SKEW = 16
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Ladder:
    """Remedies `rung(n)`, from `lowest` to `highest`; `guess`: likely the lowest that helps.

    A higher rung asks more of people, and more likely helps."""

    rung: Callable[[int], Remedy]
    lowest: int = 1
    highest: int = 1
    guess: int = 1


def _one(said: str, *changes: SimulationChange) -> Ladder:
    remedy = Remedy(said, changes)
    return Ladder(lambda number: remedy)


class Remedies:
    """`why_withheld`: why more of an ephemeral resource would not come into force, or empty."""

    def __init__(self, cache: Cache, why_withheld: Callable[[ResourceKey], str] = lambda key: "") -> None:
        self._cache = cache
        self._why_withheld = why_withheld
        self._nodes = NodeGroups(cache)
        self._numbers = PolicyNumbers(cache)

    def for_pod(self, pod: Pod) -> Iterator[Iterator[Ladder]]:
        """Yields families: the first of each that helps is enough. The least costly comes first."""
        return self._families(pod, None)

    def for_gang(self, gang: Gang) -> Iterator[Iterator[Ladder]]:
        """As `for_pod`; nothing for a gang with missing members."""
        member = next(gang.roster.unplaced(), None)
        return iter(()) if member is None or gang.missing else self._families(member, gang)

    def _families(self, pod: Pod, gang: Gang | None) -> Iterator[Iterator[Ladder]]:
        judged = self._nodes.judge(pod)
        count = 1 if gang is None else gang.needed
        yield self._uncordoned(judged, count)
        yield self._offered(pod, judged, count)
        yield self._data(pod, judged, count)
        yield self._released(pod, judged)
        yield self._ended(pod, gang, judged)
        yield self._added(pod, gang, count)
        if gang is not None:
            yield self._smaller(gang)
        yield self._policies(pod)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _uncordoned(self, judged: Judged, count: int) -> Iterator[Ladder]:
        names = sorted(name for group in judged.groups if group.rule == CORDONED for name in group.nodes)
        for name in names[:_FEW]:
            yield _one(f"uncordon node {name}", Uncordoned(name))
        if count > 1 and len(names) > 1:
            yield _enough(names, lambda some: Remedy(f"uncordon {_listed('node', some)}", _each(Uncordoned, some)))

    def _added(self, pod: Pod, gang: Gang | None, count: int) -> Iterator[Ladder]:
        """Nodes like those that could have such pods, also in topology domains of their own."""
        if self._cache.asks_ephemeral(pod):
            return
        lacking = count if gang is None or gang.wait.shortfall is None else count - gang.wait.shortfall.placed
        named = [(each, pod.requests[each]) for each in (CPU, MEMORY) if pod.requests.get(each)]

        def free(number: int) -> str:
            """What each of that many nodes needs for its share of the pods."""
            share = max(1, -(-lacking // number))
            return f", with {' and '.join(amount(each, share * units) for each, units in named)} free" if named else ""

        for like, per_node in islice(self._kinds(pod), 2):
            for own in dict.fromkeys(((), self._keys(pod))):
                apart = f", each with its own {' and '.join(own)}" if own else ""

                def more(number: int, like: NodeName = like, own: tuple[str, ...] = own, apart: str = apart) -> Remedy:
                    nodes = "1 node" if number == 1 else f"{number} nodes"
                    return Remedy(f"add {nodes} like {like}{free(number)}{apart}", (Added(like, number, own),))

                most = count if gang is not None else min(_MOST_ENDING, 1 + self._others_waiting(pod))
                yield Ladder(more, 1, most, max(1, -(-lacking // per_node)))

    def _others_waiting(self, pod: Pod) -> int:
        """Returns the number of pods that may be tried before it."""
        holding = self._cache.ledger.holding
        return sum(
            other.node is None and other.gang is None and other.priority >= pod.priority and holding(other.uid) is None
            for other in self._cache.pods.values()
            if other.uid != pod.uid
        )

    def _kinds(self, pod: Pod) -> Iterator[tuple[NodeName, int]]:
        """A node of each kind that fits the pod if empty, frequent kinds first; how many fit."""
        asked, domain = asked_of(pod.requests), self._cache.ledger.capacity.domain
        kinds: dict[tuple[object, ...], list[Node]] = {}
        for node in sorted(self._cache.nodes.values(), key=lambda node: node.name):
            if accepts(replace(node, unschedulable=False) if node.unschedulable else node, pod):
                own = frozenset((key, units) for key, units in node.allocatable.items() if not in_domain(key, domain))
                labels = frozenset((key, value) for key, value in node.labels.items() if key != HOSTNAME)
                kinds.setdefault((own, labels, node.taints), []).append(node)
        for nodes in sorted(kinds.values(), key=lambda nodes: (-len(nodes), nodes[0].name)):
            if fits := copies(nodes[0].allocatable, {}, asked):
                yield nodes[0].name, fits

    def _keys(self, pod: Pod) -> tuple[str, ...]:
        """Returns the label keys of its policies' topology domains that are larger than nodes."""
        kinds = (AntiAffinity, Balance, CoLocation)
        found = (each.parameters.topology_key for each in pod.governed if isinstance(each.parameters, kinds))
        return tuple(dict.fromkeys(key for key in found if key != HOSTNAME))

    # -- resources -----------------------------------------------------------------------------------------------

    def _offered(self, pod: Pod, judged: Judged, count: int) -> Iterator[Ladder]:
        """More of an ephemeral resource, on the nodes where least of anything else is missing."""
        for group, resource in self._ephemeral(judged):
            if self._why_withheld(resource):
                continue
            name = self._name_of(resource, pod.namespace)
            for node in self._by_room(pod, group.nodes)[:_FEW]:
                row = self._cache.ledger.rows[node]
                units = row.held.get(resource, 0) + count * pod.requests.get(resource, 0)
                yield _one(self._set(resource, name, units, [node]), Offered(name, node, units))

    def _data(self, pod: Pod, judged: Judged, count: int) -> Iterator[Ladder]:
        """Nodes get the data that a policy requires near."""
        required = [(each, near) for each, near in of_type(pod.governed, DataLocality) if near.required]
        lacking = [node for group in judged.groups if self._wants_data(pod, group) for node in group.nodes]
        domain = self._cache.ledger.capacity.domain
        keys = [EphemeralName(pod.namespace, data).key(domain) for _, near in required for data in near.data]
        if any(map(self._why_withheld, keys)):
            return
        nodes = self._by_room(pod, lacking)[: max(_FEW, min(count, _MOST_ENDING))]
        missing = {
            node: [data for _, near in required for data in near.data if not self._has(pod.namespace, data, node)]
            for node in nodes
        }

        def given(some: Sequence[NodeName]) -> Remedy:
            names = sorted({data for node in some for data in missing[node]})
            on = f"{'node' if len(some) == 1 else 'nodes'} {', '.join(some)}"
            changes = [Offered(EphemeralName(pod.namespace, d), node, 1) for node in some for d in missing[node]]
            each = ", for example:" if len(changes) > 1 else ":"
            how = f"escher resource set --namespace {pod.namespace} {names[0]} 1 --node {some[0]}"
            return Remedy(f"set {' and '.join(names)} above 0 on {on}{each} {how}", changes)

        if nodes and count == 1:
            for node in nodes:
                yield Ladder(lambda number, node=node: given([node]))  # type: ignore[misc]
        elif nodes:
            yield _enough(nodes, given)

    def _wants_data(self, pod: Pod, group: Group) -> bool:
        return any(each.name == group.policy for each, _ in of_type(pod.governed, DataLocality))

    def _has(self, namespace: str, data: str, node: NodeName) -> bool:
        key = EphemeralName(namespace, data).key(self._cache.ledger.capacity.domain)
        return node in self._cache.ledger.totals.providers.get(key, ())

    def _released(self, pod: Pod, judged: Judged) -> Iterator[Ladder]:
        """Other namespaces, or agents, release what is short on the node where least is missing."""
        for group, resource in self._ephemeral(judged):
            if group.rule == ABSENT or group.best_node is None:
                continue
            by_namespace: dict[str, list[Holding]] = {}
            for held in self._cache.ledger.rows[group.best_node].holdings.values():
                if held.units.get(resource) and (namespace := self._namespace_of(held)) is not None:
                    by_namespace.setdefault(namespace, []).append(held)
            for namespace, holdings in sorted(by_namespace.items()):
                if namespace == pod.namespace and not any(map(is_claim, holdings)):
                    continue
                names = sorted(map(self._holder_in_words, holdings))
                what = f"let namespace {namespace} release {resource} on {group.best_node}"
                yield _one(f"{what} ({_some(names)})", *map(self._let_go, holdings))

    def _ephemeral(self, judged: Judged) -> Iterator[tuple[Group, ResourceKey]]:
        for group in judged.groups:
            if group.best is not None and self._cache.ledger.capacity.is_ephemeral(group.best.resource):
                yield group, group.best.resource

    def _namespace_of(self, held: Holding) -> str | None:
        known = self._cache.pods.get(PodUid(held.holder))
        if known is not None:
            return known.namespace if known.node is not None else None
        return held.owner.namespace if is_claim(held) and held.owner is not None else None

    def _holder_in_words(self, held: Holding) -> str:
        known = self._cache.pods.get(PodUid(held.holder))
        return held.holder.replace(":", " ", 1) if known is None else f"pod {known}"

    def _let_go(self, held: Holding) -> SimulationChange:
        known = self._cache.pods.get(PodUid(held.holder))
        if known is not None:
            return Ended(known.namespace, known.name)
        namespace, _, holder = held.holder.partition(":")[2].partition("/")
        return Released(namespace, holder)

    def _name_of(self, resource: ResourceKey, namespace: str) -> EphemeralName:
        owner, dot, name = resource.partition("/")[2].partition(".")
        return EphemeralName(owner, name) if dot else EphemeralName(namespace, owner, shared=True)

    def _set(self, resource: ResourceKey, name: EphemeralName, units: int, nodes: Sequence[NodeName]) -> str:
        where = f"--shared {name.name}" if name.shared else f"--namespace {name.namespace} {name.name}"
        return f"set {resource} to {units} on {nodes[0]}: escher resource set {where} {units} --node {nodes[0]}"

    # -- resident pods -------------------------------------------------------------------------------------------

    def _ended(self, pod: Pod, gang: Gang | None, judged: Judged) -> Iterator[Ladder]:
        """Other units end: units that policies keep it from, then units in whose room it fits."""
        # Only a few: to look at every pod would delay other callers.
        seen = list(islice(self._units(pod, gang, judged), _MOST_ENDING))
        for unit in seen[: 2 * _FEW]:
            yield _one(self._end_in_words(unit), *self._ending(unit))
        if gang is not None and len(seen) > 1:
            yield _enough(seen, self._all_end, lowest=2)

    def _units(self, pod: Pod, gang: Gang | None, judged: Judged) -> Iterator[list[Pod]]:
        """Yields sets of pods that end together, each once; none of the gang itself."""
        seen: set[tuple[PodUid, ...]] = set()
        for unit in chain(map(self._unit, self._in_the_way(pod, judged)), self._in_its_room(pod)):
            who = tuple(sorted(each.uid for each in unit))
            if who and who not in seen and (gang is None or unit[0].uid not in gang.roster.members):
                seen.add(who)
                yield unit

    def _all_end(self, units: Sequence[Sequence[Pod]]) -> Remedy:
        said = " and ".join(self._end_in_words(unit).removeprefix("end ") for unit in units)
        return Remedy(f"end {said}", [each for unit in units for each in self._ending(unit)])

    def _ending(self, unit: Sequence[Pod]) -> list[SimulationChange]:
        return [Ended(pod.namespace, pod.name) for pod in unit]

    def _end_in_words(self, unit: Sequence[Pod]) -> str:
        gang = self._cache.gangs.of(unit[0].uid)
        if gang is not None:
            return f"end gang {self._cache.gangs.naming.spoken(gang.key)} ({len(unit)} pods)"
        return f"end pod {unit[0]} on {unit[0].node}"

    def _unit(self, pod: Pod) -> list[Pod]:
        """Returns the pods that end together with it; none if it would be created again."""
        comes_again = self._cache.around.daemons.comes_again
        gang = self._cache.gangs.of(pod.uid)
        members = [pod] if gang is None else gang.roster.members.values()
        return sorted((each for each in members if each.node is not None and not comes_again(each)), key=str)

    def _in_the_way(self, pod: Pod, judged: Judged) -> Iterator[Pod]:
        """Yields a policy pod of each occupied topology domain, of domains with fewest first."""
        for policy in dict.fromkeys(group.policy for group in judged.groups if group.policy):
            governed = next((each.parameters for each in pod.governed if each.name == policy), None)
            names: tuple[str, ...] = (policy,)
            match governed:
                case AntiAffinity(away_from=others, topology_key=key):
                    names = others or names
                case Balance(topology_key=key) | CoLocation(topology_key=key):
                    pass
                case None:
                    in_force = self._cache.policy_matching.in_force(pod.namespace).get(policy)
                    if in_force is None or not isinstance(in_force.parameters, AntiAffinity):
                        continue
                    key = in_force.parameters.topology_key
                case _:
                    continue
            places = self._numbers.places(pod, names, key)
            yield from (places.standing[value] for value in sorted(places.taken, key=lambda each: places.counts[each]))

    def _in_its_room(self, pod: Pod) -> Iterator[list[Pod]]:
        """Yields the units on nodes that could have it, first on nodes that lack least.

        On a node, units that make room for one pod come first, and smaller ones before larger ones."""
        rows = self._cache.ledger.rows
        for name in self._by_room(pod, (node.name for node in self._cache.nodes.values() if accepts(node, pod))):
            there = [self._cache.pods.get(PodUid(holder)) for holder in rows[name].holdings]
            units = [self._unit(each) for each in there if each is not None and each.node == name]
            yield from sorted(filter(None, units), key=lambda unit: (not _makes_room(rows[name], unit, pod), len(unit)))

    def _by_room(self, pod: Pod, names: Iterable[NodeName]) -> list[NodeName]:
        """Returns the nodes, those first on which least is missing."""
        asked, rows = asked_of(pod.requests), self._cache.ledger.rows

        def lacking(name: NodeName) -> float:
            row = rows[name]
            shares = (max(0, units - row.capacity.get(r, 0) + row.held.get(r, 0)) / units for r, units in asked)
            return sum(shares)

        known = [name for name in names if name in rows]
        return sorted(
            known, key=lambda name: (lacking(name), -copies(rows[name].capacity, rows[name].held, asked), name)
        )

    # -- what was asked for --------------------------------------------------------------------------------------

    def _smaller(self, gang: Gang) -> Iterator[Ladder]:
        quorum, short, key = gang.terms.quorum, gang.wait.shortfall, self._cache.gangs.naming.spoken(gang.key)

        def fewer(by: int) -> Remedy:
            return Remedy(f"set gang-min-member to {quorum - by}", (QuorumSet(key, quorum - by),))

        if (most := quorum - max(1, gang.roster.placed + 1)) > 0:
            yield Ladder(fewer, 1, most, min(most, max(1, short.asked - short.placed if short is not None else 1)))

    def _policies(self, pod: Pod) -> Iterator[Ladder]:
        for each in pod.governed:
            match each.parameters:
                case Balance(tasks=0) as even:
                    yield self._skewed(pod, each.name, even)
                case Balance(tasks=tasks) as even:
                    places = len(self._numbers.places(pod, (each.name,), even.topology_key).nodes)
                    more = -(-tasks // max(1, places)) * places + 1
                    yield self._changed(pod, each.name, replace(even, tasks=more), f"tasks to {more}")
                case CoLocation(size=size) as near if size > 1:
                    for less in (size // 2, 0):
                        yield self._changed(pod, each.name, replace(near, size=less), f"size to {less}")
                case AntiAffinity(topology_key=key) as apart if key != HOSTNAME:
                    by_node = replace(apart, topology_key=HOSTNAME)
                    yield self._changed(pod, each.name, by_node, f"topology_key to {HOSTNAME}")
                case DataLocality(required=True) as data:
                    preferring = replace(data, required=False)
                    yield self._changed(pod, each.name, preferring, "required to false (it then prefers such nodes)")
                case _:
                    pass
        for each in pod.governed:
            if isinstance(each.parameters, AntiAffinity | Balance | CoLocation | DataLocality):
                yield _one(f"remove policy {each.name}", PolicySet(pod.namespace, each.name, None))

    def _skewed(self, pod: Pod, policy: str, even: Balance) -> Ladder:
        def rung(more: int) -> Remedy:
            skew = even.max_skew + more
            return self._changed(pod, policy, replace(even, max_skew=skew), f"max_skew to {skew}").rung(1)

        return Ladder(rung, 1, _MOST_SKEW, 1)

    def _changed(self, pod: Pod, policy: str, parameters: Parameters, said: str) -> Ladder:
        in_force = self._cache.policy_matching.in_force(pod.namespace)[policy]
        changed = replace(in_force, parameters=parameters)
        return _one(f"in policy {policy}, set {said}", PolicySet(pod.namespace, policy, changed))


def _makes_room(row: Row, unit: Sequence[Pod], pod: Pod) -> bool:
    freed: dict[ResourceKey, int] = {}
    for each in unit:
        if Holder(each.uid) in row.holdings:
            for resource, units in each.requests.items():
                freed[resource] = freed.get(resource, 0) + units
    return copies(row.capacity, row.held, asked_of(pod.requests), freed, 1) > 0


def _enough(names: Sequence[T], remedy: Callable[[Sequence[T]], Remedy], lowest: int = 1) -> Ladder:
    """A ladder over the first n of these."""
    return Ladder(lambda number: remedy(names[:number]), lowest, len(names), lowest)


def _each(kind: Callable[[NodeName], SimulationChange], names: Sequence[NodeName]) -> list[SimulationChange]:
    return [kind(name) for name in names]


def _listed(word: str, names: Sequence[str]) -> str:
    return f"{word}s {_some(names)}" if len(names) > 1 else f"{word} {names[0]}"


def _some(names: Sequence[str]) -> str:
    said = ", ".join(names[:_NAMED])
    return said if len(names) <= _NAMED else f"{said} and {len(names) - _NAMED} more"
