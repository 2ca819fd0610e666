"""Which pods stand where: what is kept pod by pod is what counting anew would say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.affinity import pod_affinity_index as module
from extender.core.affinity.constraints import POLICY_LABEL, AffinityTerm, Constraints, HostPort, Peers
from extender.core.affinity.pod_affinity_index import MOST_OF_OWN, Around, Ask, PodAffinityIndex
from extender.core.cluster import Pod
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName, PodUid
from tests.builders import pod
from tests.core.town import apart, peers, ports, term

TRAIN: Ask = ((peers(),), False)
LIVING: Ask = ((peers(),), True)


def pod_affinity(*pods: Pod) -> PodAffinityIndex:
    found = PodAffinityIndex()
    for each in pods:
        found.put(each)
    return found


def on(at: str | None, name: str = "train-0", app: str = "train", **facts: Any) -> Pod:
    return pod(name, {}, labels={"app": app}, node=None if at is None else NodeName(at), **facts)


def test_pods_are_counted_on_their_nodes_by_label_and_namespace() -> None:
    found = pod_affinity(on("n1"), on("n1", "train-1"), on("n2", "web-0", "web"), on(None, "train-2"))
    found.put(on("n1", "train-3", namespace="elsewhere"))
    assert found.counts(TRAIN) == {"n1": 2}
    found.put(on("n2", "train-2"))
    assert found.counts(TRAIN) == {"n1": 2, "n2": 1}
    found.remove(PodUid("uid-train-0"))
    found.remove(PodUid("uid-never"))
    assert found.counts(TRAIN) == {"n1": 1, "n2": 1}


def test_who_is_being_deleted_counts_only_where_that_is_wanted() -> None:
    found = pod_affinity(on("n1"))
    assert (found.counts(TRAIN), found.counts(LIVING)) == ({"n1": 1}, {"n1": 1})
    found.put(on("n1", deleting=True))
    assert (found.counts(TRAIN), found.counts(LIVING)) == ({"n1": 1}, {})


def test_a_change_of_what_nobody_asks_about_is_none() -> None:
    found = pod_affinity(on("n1"))
    before = found.version
    found.put(on("n1", priority=3))
    assert found.version == before
    found.put(replace(on("n1"), labels={"app": "web"}))
    assert found.version > before


def test_it_is_told_when_who_repels_others_has_changed_and_when_anybody_bound_has() -> None:
    found = pod_affinity()

    def changed() -> tuple[int, int]:
        now = (found.version, found.repellers_changed)
        grown = now[0] - before[0], now[1] - before[1]
        before[:] = now
        return grown

    before = [found.version, found.repellers_changed]
    found.put(on("n1"))
    assert changed() == (1, 0)
    found.put(on(None, "waits"))
    assert changed() == (0, 0)
    shy = on(None, "shy", constraints=apart())
    found.put(shy)
    assert changed() == (0, 1)
    found.put(replace(shy, labels={"app": "web"}))
    assert changed() == (0, 0)
    found.put(replace(shy, node=NodeName("n1")))
    assert changed() == (1, 0)
    found.put(replace(shy, node=NodeName("n1"), constraints=apart("host")))
    # It goes with the one requirement and comes with the other.
    assert changed() == (2, 2)
    found.remove(shy.uid)
    assert changed() == (1, 1)
    found.remove(shy.uid)
    assert changed() == (0, 0)
    found.remove(PodUid("uid-train-0"))
    assert changed() == (1, 0)


def test_pods_are_known_as_they_were_put_last_bound_or_not_until_they_are_gone() -> None:
    waits, stands = on(None, "waits"), on("n1", "stands")
    found = pod_affinity(waits, stands)
    assert (found.get(waits.uid), found.get(stands.uid), found.get(PodUid("uid-other"))) == (waits, stands, None)
    assert list(found.bound()) == [stands]
    later = replace(stands, priority=3)
    found.put(later)
    assert list(found.bound()) == [later]
    bound = replace(waits, node=NodeName("n2"))
    found.put(bound)
    assert found.get(waits.uid) == bound
    assert list(found.bound()) == [later, bound]
    # A pod of the same UID that is not bound is another, as after a backup was restored.
    found.put(waits)
    assert list(found.bound()) == [later]
    found.remove(waits.uid)
    found.remove(stands.uid)
    assert (found.get(waits.uid), found.get(stands.uid)) == (None, None)


def test_who_repels_all_namespaces_does_so_in_each() -> None:
    everywhere = replace(term(), peers=replace(peers(), namespaces=None))
    found = pod_affinity(on(None, "shy-0", "shy", constraints=Constraints(anti_affinity=(everywhere,))))
    assert found.repels_in("elsewhere")
    assert found.repels(on(None, namespace="elsewhere"))
    assert not found.repels(on(None, "web-0", "web", namespace="elsewhere"))


def test_who_repels_others_does_so_bound_or_not_until_it_is_gone() -> None:
    found = pod_affinity(on(None, "shy-0", "shy", constraints=apart(app="train")))
    assert found.repels(on(None))
    assert found.repels_in("default")
    assert not found.repels(on(None, "web-0", "web"))
    assert not found.repels(on(None, namespace="elsewhere"))
    assert not found.repels_in("elsewhere")
    assert found.repelling() == {}
    found.put(on("n1", "shy-0", "shy", constraints=apart(app="train")))
    assert found.repelling() == {term(): {"n1": 1}}
    found.remove(PodUid("uid-shy-0"))
    assert not found.repels(on(None))
    assert found.repelling() == {}


def test_of_many_asks_the_latest_are_kept_up_to_date_and_all_are_answered() -> None:
    found = pod_affinity(on("n1"))
    for number in range(200):
        assert found.counts(((peers(f"app-{number}"),), False)) == {}
    found.put(on("n2", "train-1"))
    assert found.counts(TRAIN) == {"n1": 1, "n2": 1}
    assert found.counts(((peers("app-199"),), False)) == {}


def test_around_leaves_out_who_leaves_and_adds_who_comes() -> None:
    leaves = on("n1", constraints=Constraints((HostPort(80),), anti_affinity=(term(),)))
    comes = on(None, "train-1", constraints=ports(81))
    around = Around(pod_affinity(leaves), [(comes, NodeName("n2"))], [leaves.uid, PodUid("uid-unknown")])
    assert around.counts(TRAIN) == {"n2": 1}
    assert around.repelling() == {}
    assert list(around.ports_on(NodeName("n1"))) == []
    assert list(around.ports_on(NodeName("n2"))) == [HostPort(81)]


def test_of_two_that_have_a_port_on_one_node_both_have_to_leave() -> None:
    """No scheduler puts them there; whoever names the node himself does."""
    one, other = (on("n1", f"train-{number}", constraints=ports(80)) for number in range(2))
    there = pod_affinity(one, other)
    assert list(Around(there, leaving=[one.uid]).ports_on(NodeName("n1"))) == [HostPort(80)]
    assert list(Around(there, leaving=[one.uid, other.uid]).ports_on(NodeName("n1"))) == []


def test_what_differs_is_a_violation() -> None:
    found = pod_affinity(on("n1"))
    assert found.counts(TRAIN)
    there = {PodUid("uid-train-0"): on("n1")}
    assert list(found.violations(there)) == []

    def told(bound: dict[PodUid, Pod]) -> list[tuple[str, str]]:
        return [(each.invariant, each.detail) for each in found.violations(bound)]

    assert told({}) == [("bystanders", "['uid-train-0'] indexed; bound are []")]
    [(invariant, detail)] = told({PodUid("uid-train-0"): on("n2")})
    assert invariant == "bystanders"
    assert detail.endswith("{'n1': 1}; recounted {'n2': 1}")
    for what in (ports(80), apart()):
        [(invariant, detail)] = told({PodUid("uid-train-0"): on("n1", constraints=what)})
        assert invariant == "bystanders"
        assert detail.startswith("{}, {}; again {")


def test_around_those_that_leave_count_once_and_those_that_come_all() -> None:
    there = pod_affinity(on("n1"), on("n1", "train-1"), on(None, "train-2"))
    leaves = [PodUid("uid-train-0"), PodUid("uid-train-2"), PodUid("uid-train-0")]
    comes = [(on(None, f"new-{number}", constraints=ports(80 + number)), NodeName("n2")) for number in range(2)]
    comes.append((on(None, "web-0", "web"), NodeName("n2")))
    around = Around(there, comes, leaves)
    assert around.counts(TRAIN) == {"n1": 1, "n2": 2}
    assert Around(there, leaving=leaves).counts(TRAIN) == {"n1": 1}
    assert Around(there, comes).counts(TRAIN) == {"n1": 2, "n2": 2}
    assert sorted(port.port for port in around.ports_on(NodeName("n2"))) == [80, 81]
    # What is asked of one plan changes nothing for the next.
    assert there.counts(TRAIN) == {"n1": 2}
    assert Around(there).counts(TRAIN) == {"n1": 2}


def test_around_who_is_being_deleted_counts_only_where_that_is_wanted() -> None:
    around = Around(pod_affinity(on("n1")), [(on(None, "train-1", deleting=True), NodeName("n1"))])
    assert (around.counts(TRAIN), around.counts(LIVING)) == ({"n1": 2}, {"n1": 1})


def test_around_who_repels_others_is_told_with_those_that_come_and_without_those_that_leave() -> None:
    one, other = (on("n1", f"shy-{number}", "shy", constraints=apart(app="train")) for number in range(2))
    there = pod_affinity(one, other)
    comes = [(on(None, "new", constraints=apart("host")), NodeName("n2"))]
    around = Around(there, comes, [one.uid])
    assert around.repelling() == {term(): {"n1": 1}, term("host"): {"n2": 1}}
    assert there.repelling() == {term(): {"n1": 2}}


def test_in_an_emptied_cluster_there_are_only_those_that_come_and_whom_somebody_wants_to_be_near() -> None:
    stands = on("n1", constraints=Constraints((HostPort(80),), anti_affinity=(term(),)))
    there = pod_affinity(stands)
    comes = [(on(None, "train-1", constraints=ports(81)), NodeName("n1"))]
    for leaving in ([], [stands.uid]):
        around = Around(there, comes, leaving, emptied=True)
        assert around.counts(TRAIN) == {"n1": 1}
        assert around.counts(TRAIN, attracting=True) == {"n1": 2}
        assert around.repelling() == {}
        assert list(around.ports_on(NodeName("n1"))) == [HostPort(81)]


pods_seen = st.builds(
    lambda name, at, app, deleting, what: on(at, name, app, deleting=deleting, constraints=what),
    st.sampled_from(("a", "b", "c")),
    st.sampled_from((None, "n1", "n2")),
    st.sampled_from(("train", "web")),
    st.booleans(),
    st.sampled_from((None, apart(), ports(80), Constraints((HostPort(81),), anti_affinity=(term("host"),)))),
)


@given(st.lists(st.one_of(pods_seen, st.sampled_from(("a", "b", "c")))))
def test_after_any_news_it_is_what_counting_anew_says(news: list[Pod | str]) -> None:
    found, known = PodAffinityIndex(), dict[PodUid, Pod]()
    for each in news:
        if isinstance(each, str):
            found.remove(PodUid(f"uid-{each}"))
            known.pop(PodUid(f"uid-{each}"), None)
        else:
            found.put(each)
            known[each.uid] = each
        found.counts(TRAIN)
        found.counts(LIVING)
        bound = {uid: pod for uid, pod in known.items() if pod.node is not None}
        assert list(found.violations(bound)) == []
        living = [pod for pod in bound.values() if pod.labels["app"] == "train" and not pod.deleting]
        assert sum(found.counts(LIVING).values()) == len(living)
        shy = [pod for pod in known.values() if pod.constraints and pod.constraints.anti_affinity]
        assert found.repels(on(None, "other")) is bool(shy)


def test_who_asks_about_pods_of_some_namespaces_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found, looked_at = pod_affinity(on("n1"), on("n2", "train-1")), list[str]()
    for number in range(20):
        found.put(on("n1", f"far-{number}", namespace="elsewhere"))
    is_meant = module._is_meant

    def counted(pod: Pod, *about: Any, **more: Any) -> bool:
        looked_at.append(pod.name)
        return is_meant(pod, *about, **more)

    monkeypatch.setattr(module, "_is_meant", counted)
    assert found.counts(TRAIN) == {"n1": 1, "n2": 1}
    # The second is like the first.
    assert looked_at == ["train-0"]
    found.remove(PodUid("uid-train-1"))
    assert found.counts(TRAIN) == {"n1": 1}


def test_many_asks_are_counted_in_one_pass_over_pods_that_differ_in_what_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks: list[Ask] = [((peers(f"a{number}"),), False) for number in range(50)]
    there = (on(f"n{number}", f"train-{number}", f"a{number % 4}") for number in range(200))
    found, looked_at = (
        pod_affinity(*(replace(pod, labels={**pod.labels, "index": pod.name}) for pod in there)),
        list[str](),
    )
    is_meant = module._is_meant

    def counted(pod: Pod, *about: Any, **more: Any) -> bool:
        looked_at.append(pod.name)
        return is_meant(pod, *about, **more)

    monkeypatch.setattr(module, "_is_meant", counted)
    around = Around(found)
    around.look_at(asks)
    assert [sum(around.counts(ask).values()) for ask in asks[:5]] == [50, 50, 50, 50, 0]
    # Four unlike pods for each ask, not 200.
    assert len(looked_at) == 4 * len(asks)


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"))
REQUIREMENTS = st.builds(
    LabelRequirement,
    st.sampled_from("ab"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("xyz"), min_size=1, unique=True).map(tuple),
)
TERMS = st.builds(
    AffinityTerm,
    st.builds(
        Peers,
        st.none() | st.frozensets(st.sampled_from(["default", "elsewhere"])),
        st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple),
    ),
    st.just("zone"),
)


@given(st.lists(st.tuples(TERMS, st.booleans()), max_size=6), LABELS)
def test_who_repels_a_pod_is_found_by_its_labels(
    terms: list[tuple[AffinityTerm, bool]], labels: dict[str, str]
) -> None:
    found = PodAffinityIndex()
    for number, (repelling, _) in enumerate(terms):
        found.put(pod(f"p{number}", {}, constraints=Constraints(anti_affinity=(repelling,))))
    for number, (_, stays) in enumerate(terms):
        if not stays:
            found.remove(PodUid(f"uid-p{number}"))
    meant = [each for each, stays in terms if stays and each.peers.include("default", labels)]
    assert found.repels(pod("x", {}, labels=labels)) is bool(meant)
    if not any(stays for _, stays in terms):
        assert not found.repels_in("default")


def test_terms_about_other_labels_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found, looks = PodAffinityIndex(), list[Peers]()

    def include(self: Peers, namespace: str, labels: dict[str, str]) -> bool:
        looks.append(self)
        return True

    monkeypatch.setattr(Peers, "include", include)
    for number in range(100):
        away = AffinityTerm(Peers(None, (LabelRequirement("app", "In", (f"other-{number}",)),)), "zone")
        found.put(pod(f"p{number}", {}, namespace="elsewhere", constraints=Constraints(anti_affinity=(away,))))
    assert not found.repels(pod("x", {}, labels={"app": "mine"}))
    assert looks == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), TERMS), max_size=20))
def test_of_what_a_namespace_says_of_others_so_much_is_looked_at(news: list[tuple[str, bool, AffinityTerm]]) -> None:
    """Whatever its own pods say of each other is, and all that is about others again when there is less of it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "MOST_ABOUT_OTHERS", 2)
        found, there = PodAffinityIndex(), dict[str, AffinityTerm]()
        for name, comes, repelling in news:
            found.remove(PodUid(f"uid-{name}"))
            there.pop(name, None)
            if comes:
                there[name] = repelling
                found.put(pod(name, {}, constraints=Constraints(anti_affinity=(repelling,))))
        for namespace in ("default", "elsewhere"):
            for value in "xyz":
                one = pod("one", {}, namespace=namespace, labels={"a": value})
                meant = {each for each in there.values() if each.peers.include(namespace, one.labels)}
                looked_at = set(found._meaning(one))
                assert looked_at <= meant
                about_others = {each for each in there.values() if each.is_about_others("default")}
                if namespace == "default" or len(about_others) <= 2:
                    assert looked_at == meant
                else:
                    assert len(looked_at) >= len(meant) - (len(about_others) - 2)
                    assert len(looked_at) <= 2
        for name in list(there):
            found.remove(PodUid(f"uid-{name}"))
        assert (found._repelled, found._repelled_by_own, found._about_others) == ({}, {}, {})


def test_of_what_pods_of_its_own_namespace_say_so_much_is_looked_at_and_all_that_policies_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant may have any number of terms about its own pods, and whoever is planned waits for a look at them."""
    found, looks, include = PodAffinityIndex(), list[Peers](), Peers.include

    def counted(self: Peers, namespace: str, labels: dict[str, str]) -> bool:
        looks.append(self)
        return include(self, namespace, labels)

    for number in range(MOST_OF_OWN + 500):
        unlike = LabelRequirement("app", "NotIn", (f"other-{number}",))
        away = AffinityTerm(Peers(frozenset({"default"}), (unlike,)), "zone")
        found.put(on("n1", f"p{number}", constraints=Constraints(anti_affinity=(away,))))
    for number in range(3):
        policys = LabelRequirement(f"{POLICY_LABEL}p{number}", "Exists")
        away = AffinityTerm(Peers(frozenset({"default"}), (policys,)), "zone")
        found.put(on("n1", f"governed-{number}", constraints=Constraints(anti_affinity=(away,))))
    monkeypatch.setattr(Peers, "include", counted)
    governed = pod("one", {}, labels={"app": "mine", f"{POLICY_LABEL}p2": ""})
    asked = found.repelling([governed])
    assert len(looks) == len(asked) == MOST_OF_OWN + 1
    assert any(each.peers.selector == (LabelRequirement(f"{POLICY_LABEL}p2", "Exists"),) for each in asked)
    for number in range(MOST_OF_OWN):
        found.remove(PodUid(f"uid-p{number}"))
    assert len(found.repelling([governed])) == 500 + 1, "as others go, those are looked at that were not"


def test_one_that_leaves_closes_no_place_by_what_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ABOUT_OTHERS", 1)
    away = [AffinityTerm(Peers(None, (LabelRequirement(key, "NotIn", ("x",)),)), "zone") for key in "ab"]
    leaves = on("n1", "leaves", namespace="elsewhere", constraints=Constraints(anti_affinity=tuple(away)))
    found = pod_affinity(leaves)
    one = on(None, "one")
    assert list(found.repelling([one])) == away[:1]
    assert not Around(found, leaving=[leaves.uid]).repelling([one])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n1", "n2"]), LABELS), max_size=12))
def test_an_answer_that_is_another_one_has_another_version(news: list[tuple[str, str, dict[str, str]]]) -> None:
    ask: Ask = ((Peers(frozenset({"default"}), (LabelRequirement("a", "Exists", ()),)),), False)
    found = PodAffinityIndex()
    before, version = dict(found.counts(ask)), found.version_of(ask)
    for name, at, labels in news:
        if at:
            found.put(pod(name, {}, labels=labels, node=NodeName(at)))
        else:
            found.remove(PodUid(f"uid-{name}"))
        if found.version_of(ask) == version:
            assert dict(found.counts(ask)) == before
        before, version = dict(found.counts(ask)), found.version_of(ask)


def test_pods_that_an_ask_does_not_mean_leave_its_version_as_it_was() -> None:
    found = pod_affinity(on("n1"))
    found.counts(TRAIN)
    version = found.version_of(TRAIN)
    found.put(on("n1", "web-0", "web"))
    found.remove(PodUid("uid-web-0"))
    assert found.version_of(TRAIN) == version
    found.put(on("n2", "train-1"))
    assert found.version_of(TRAIN) != version
