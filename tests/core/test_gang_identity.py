"""Which pods are one gang, whatever their labels and owners say, against an oracle; and what each gang is called."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, cast

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.adapters.translation.objects import to_pod
from extender.adapters.value_codec import Shape
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk, MalformedAsk, derived_key
from extender.core.gangs.naming import Ambiguous, Naming
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.names import GangKey
from extender.kube import objects
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import node, pod
from tests.core.gang_world import GangWorld

LABEL, GROUP_LABEL = "escher.dev/gang", "scheduling.x-k8s.io/pod-group"

# -- the oracle: as the documentation says it, of the JSON of a pod --------------------------------------------------


def gang_of(manifest: dict[str, Any]) -> tuple[str, ...] | None:
    """What makes the pod's gang: pods with the same are of one gang. None: it is of none."""
    metadata = manifest["metadata"]
    labels, says_quorum = metadata["labels"], "escher.dev/gang-min-member" in metadata["annotations"]
    if LABEL in labels:
        usable = says_quorum and labels[LABEL].replace("-", "").isalnum() and labels[LABEL].islower()
        return ("label", metadata["namespace"], labels[LABEL]) if usable else None
    if says_quorum:
        for owner in metadata["ownerReferences"]:
            if owner["controller"]:
                group = owner["apiVersion"].rpartition("/")[0]
                told = f"{owner['kind'].lower()}.{owner['name']}"
                usable = all(owner[key] for key in ("kind", "name", "uid")) and len(owner["name"]) <= 253
                return ("controller", metadata["namespace"], told, group, owner["uid"]) if usable else None
        return None
    return ("pod group", metadata["namespace"], labels[GROUP_LABEL]) if GROUP_LABEL in labels else None


NAMESPACES = st.sampled_from(["team-a", "team-b"])
OWNERS = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["v1", "batch/v1", "core/v1", "batch.example.org/v1", "b@c/v1"]),
        "kind": st.sampled_from(["Job", "job", "PodGroup", "Job.a"]),
        "name": st.sampled_from(["a", "a.b", "b", "a@batch", "a@core@12345678", "n" * 254, "\n%40"]),
        "uid": st.sampled_from(["1", "12345678", "12345678-b", "12345678-c", "ü@", ""]),
        "controller": st.booleans(),
    }
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        LABEL: st.sampled_from(["a", "job-a", "job.a", "podgroup.a", "A"]),
        GROUP_LABEL: st.sampled_from(["a", "b"]),
    },
)
QUORUM = st.fixed_dictionaries({}, optional={"escher.dev/gang-min-member": st.sampled_from(["1", "2", "3"])})


class Identities(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GangWorld()
        self.world.add_node(node("n0", {"cpu": 1000}))
        for namespace in ("team-a", "team-b"):
            self.world.do(self.world.scheduler.observe(PodGroup(namespace, "a", 2)))
            self.world.do(self.world.scheduler.observe(PodGroup(namespace, "b", 2)))
        self.manifests: dict[str, dict[str, Any]] = {}
        self.made = 0

    def _tell(self, uid: str) -> None:
        read = msgspec.json.decode(json.dumps(self.manifests[uid]), type=objects.Pod)
        self.world.do(self.world.scheduler.observe(to_pod(read, 60.0)))

    @rule(
        namespace=NAMESPACES,
        labels=LABELS,
        annotations=QUORUM,
        owners=st.lists(OWNERS, max_size=2),
        placed=st.booleans(),
        second=st.integers(0, 3),
    )
    def pod_comes(self, namespace: str, placed: bool, second: int, **metadata: Any) -> None:
        self.made += 1
        metadata["ownerReferences"] = metadata.pop("owners")
        created = f"2026-01-01T00:00:0{second}Z"
        about = {"name": f"p{self.made}", "namespace": namespace, "uid": f"u{self.made}", "creationTimestamp": created}
        spec = {"schedulerName": "escher", "containers": [{"name": "main"}]}
        self.manifests[f"u{self.made}"] = {
            "metadata": {**about, **metadata},
            "spec": {**spec, "nodeName": "n0"} if placed else spec,
        }
        self._tell(f"u{self.made}")

    @rule(which=st.integers(0, 40), owners=st.lists(OWNERS, max_size=2))
    def pod_is_handed_over(self, which: int, owners: list[dict[str, Any]]) -> None:
        if (uid := f"u{which}") in self.manifests:
            self.manifests[uid]["metadata"]["ownerReferences"] = owners
            self._tell(uid)

    @rule(which=st.integers(0, 40))
    def pod_goes(self, which: int) -> None:
        if self.manifests.pop(uid := f"u{which}", None) is not None:
            self.world.do(self.world.scheduler.forget(pod(uid=PodUid(uid))))

    @invariant()
    def gangs_are_the_oracles(self) -> None:
        expected: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for uid, manifest in self.manifests.items():
            if (made_by := gang_of(manifest)) is not None:
                expected[made_by].add(uid)
        gangs = self.world.scheduler.cache.gangs.by_key.values()
        assert sorted(sorted(gang.roster.members) for gang in gangs) == sorted(map(sorted, expected.values()))

    @invariant()
    def each_has_a_name_of_its_own_and_is_found_by_it(self) -> None:
        gangs = self.world.scheduler.cache.gangs
        said = [gangs.naming.spoken(key) for key in gangs.by_key]
        assert len(set(said)) == len(said)
        assert [gangs.naming.find(key) for key in said] == list(gangs.by_key.values())
        for key, gang in gangs.by_key.items():
            assert gangs.naming.find(GangKey(key.namespace, key.spellings[-1])) is gang
            for spelling in key.spellings:
                try:
                    found = gangs.naming.find(GangKey(key.namespace, spelling))
                except Ambiguous:
                    continue
                assert found is not None
                assert spelling in found.key.spellings

    @invariant()
    def nothing_is_amiss(self) -> None:
        assert self.world.scheduler.cache.violations() == []


Identities.TestCase.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=25)
TestIdentities = Identities.TestCase

# -- what is held for one is not held for another -------------------------------------------------------------------


def members(uid: str, count: int, *, quorum: int = 2, group: str = "batch") -> list[Pod]:
    ask = GangAsk(derived_key("default", "Job", "train", group, uid), quorum, 4.0)
    return [pod(f"{uid}-{number}", gang=ask) for number in range(count)]


def test_places_for_members_that_are_to_come_are_each_gangs_own() -> None:
    """Each holds a place for a member that does not exist: by the name alone both places would be one."""
    world = GangWorld(jobs=2)
    world.add_node(node("n0", {"cpu": 4000}))
    first, second = members("before", 2), members("after", 2)
    for one, *_ in (first, second):
        world.create(one)
        world.filter(one, [NodeName("n0")])
    assert world.scheduler.cache.ledger.rows[NodeName("n0")].held[CPU] == 4000
    world.create(first[1], second[1])
    world.schedule()
    assert len(world.scheduler.cache.gangs.by_key) == 2
    assert all(each.node == "n0" for each in world.pods.values())
    world.check()


# -- what each is called --------------------------------------------------------------------------------------------


def named(*keys: GangKey) -> Naming:
    gangs = {key: Gang(key, 2, 4.0, 0.0) for key in keys}
    naming = Naming(gangs)
    for key in keys:
        naming.add(key)
    return naming


def job(uid: str, group: str = "batch", name: str = "train") -> GangKey:
    return derived_key("default", "Job", name, group, uid)


def test_a_gang_that_shares_its_name_with_no_other_has_the_name_alone_and_is_found_by_every_longer_one() -> None:
    naming = named(job("3f9c1a00-77"), job("other", name="other"))
    assert naming.of(job("3f9c1a00-77")) == "job.train"
    longer = ["job.train", "job.train@batch", "job.train@batch@3f9c1a00", "job.train@batch@3f9c1a00-77"]
    assert {naming.find(GangKey("default", name)) for name in longer} == {naming.find(job("3f9c1a00-77"))}
    assert naming.find(GangKey("team-a", "job.train")) is None


def test_the_one_by_label_keeps_a_name_that_it_shares() -> None:
    label = GangKey("default", "job.train")
    naming = named(job("1"), label)
    assert [naming.of(key) for key in (label, job("1"))] == ["job.train", "job.train@batch"]
    assert cast(Gang, naming.find(label)).key == label


def test_the_core_group_has_a_name_that_no_other_group_has() -> None:
    core, forged = job("1", ""), job("1", "core")
    naming = named(core, forged)
    assert [naming.of(core), naming.of(forged)] == ["job.train@core", "job.train@%63ore"]


def test_of_one_group_and_name_the_youngest_has_the_shorter_name_whatever_was_seen_first() -> None:
    for order in ((job("before"), job("after")), (job("after"), job("before"))):
        naming = named(*order)
        after = cast(Gang, naming.find(job("after")))
        after.roster.take(pod(created=5.0))
        after.terms = after.terms.as_asked_by(after.roster)
        assert naming.of(job("after")) == "job.train"
        assert naming.of(job("before")) == "job.train@batch@before"
        assert cast(Gang, naming.find(GangKey("default", "job.train"))).key == job("after")


def test_where_thousands_share_a_name_each_has_its_uid_and_none_costs_more_for_that() -> None:
    keys = [job(f"{number:05d}") for number in range(5000)]
    naming = named(*keys)
    assert len({naming.of(key) for key in keys}) == 5000
    with pytest.raises(Ambiguous) as ambiguous:
        naming.find(GangKey("default", "job.train"))
    assert len(ambiguous.value.names) == 5
    for key in keys[1:]:
        naming.drop(key)
    assert naming.of(keys[0]) == "job.train"


def test_uids_that_begin_alike_are_shown_whole() -> None:
    naming = named(*(job(f"12345678-{end}") for end in "abc"))
    shown = [naming.of(job(f"12345678-{end}")) for end in "abc"]
    assert shown == ["job.train@batch@12345678-a", "job.train@batch@12345678-b", "job.train"]
    with pytest.raises(Ambiguous):
        naming.find(GangKey("default", "job.train@batch@12345678"))


# -- what no controller can be called -------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "most"), [("kind", 63), ("name", 253), ("uid", 128), ("group", 253)])
def test_a_controller_that_no_object_can_be_is_malformed_for_a_constant_reason(field: str, most: int) -> None:
    def read(text: str) -> Pod:
        owner = {"kind": "Job", "name": "train", "uid": "1", "controller": True, "apiVersion": "batch/v1"}
        owner |= {"apiVersion": f"{text}/v1"} if field == "group" else {field: text}
        metadata: dict[str, Any] = {"name": "p", "namespace": "team-a", "uid": "u", "ownerReferences": [owner]}
        metadata["annotations"] = {"escher.dev/gang-min-member": "2"}
        manifest = {"metadata": metadata, "spec": {"containers": []}}
        return to_pod(msgspec.json.decode(json.dumps(manifest), type=objects.Pod), 60.0)

    assert isinstance(read("x" * most).gang, GangAsk)
    refused = [read("x" * (most + 1)).gang, read("y" * 1_000_000).gang]
    assert isinstance(refused[0], MalformedAsk)
    assert refused[0] == refused[1]
    assert refused[0].field == "metadata.ownerReferences"
    owner = read("y" * 1_000_000).owner
    assert owner is not None
    assert len(repr(owner)) < 1000


def test_a_key_of_an_older_dump_is_read_as_it_was() -> None:
    shape: Shape[GangKey] = Shape(GangKey)
    old = {"namespace": "default", "name": "job.train"}
    assert shape.from_plain(old) == GangKey("default", "job.train")
    assert shape.to_plain(GangKey("default", "train")) == {"namespace": "default", "name": "train"}
    assert shape.from_plain(shape.to_plain(job("1"))) == job("1")
