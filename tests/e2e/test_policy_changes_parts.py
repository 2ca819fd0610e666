"""What judges policies under load, without a cluster: what is wrong is found, and what may have been right is not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lab.controlplane.witness import Sighting
from loadtests.policy_changes.__main__ import arguments, details, table
from loadtests.policy_changes.drawing import Change, all_changes, bad, change, patch, policies_for, unit
from loadtests.policy_changes.history import History, Verdicts, reduced
from loadtests.policy_changes.rules import HOSTNAME, ZONE, Ground, PodSeen, Policy, where, why_not
from loadtests.policy_changes.run import WRONG, Plan, Result, spread

GROUND = Ground(
    {f"n{number}": {HOSTNAME: f"n{number}", ZONE: "ab"[number // 2]} for number in range(4)},
    {"d0": frozenset({"n0", "n1"}), "d1": frozenset({"n2"})},
)
LATEST = 1.0


def pod(name: str, *named: str, gang: str = "", **labels: str) -> PodSeen:
    return PodSeen(name, labels, named, gang)


def policy(kind: str, selector: Any = None, **parameters: Any) -> Policy:
    return Policy(kind, parameters, selector)


ME = pod("me", "it")
WEB = {"match_labels": {"tier": "web"}}


@pytest.mark.parametrize(
    ("it", "others", "allowed"),
    [
        (policy("anti-affinity"), {"n0": "it"}, "n1 n2 n3"),
        (policy("anti-affinity", topology_key=ZONE), {"n0": "it"}, "n2 n3"),
        (policy("anti-affinity", away_from=["other"]), {"n0": "it", "n1": "other"}, "n0 n2 n3"),
        (policy("anti-affinity", away_from=["gone"]), {"n1": "gone"}, "n0 n1 n2 n3"),
        (policy("bin-packing"), {"n0": "keeping"}, "n1 n2 n3"),
        (policy("balance", tasks=4), {"n0": "it", "n3": "it"}, "n1 n2"),
        (policy("balance"), {"n0": "it", "n1": "it", "n2": "it"}, "n3"),
        (policy("balance", max_skew=2, topology_key=ZONE), {"n0": "it", "n1": "it"}, "n2 n3"),
        (policy("co-location"), {"n2": "it"}, "n2"),
        (policy("co-location"), {}, "n0 n1 n2 n3"),
        (policy("co-location", topology_key=ZONE), {"n2": "it"}, "n2 n3"),
        (policy("data-locality", data=["d0"]), {}, "n0 n1"),
        (policy("data-locality", data=["d0"], required=False), {}, "n0 n1 n2 n3"),
        (None, {}, ""),
    ],
)
def test_where_a_pod_may_be(it: Policy | None, others: dict[str, str], allowed: str) -> None:
    policies = {"other": policy("bin-packing"), "keeping": policy("anti-affinity", away_from=["it"])}
    if it is not None:
        policies["it"] = it
    standing = [(pod(f"on-{node}", name), node) for node, name in others.items()]
    assert [node for node in GROUND.nodes if not why_not(ME, node, standing, policies, GROUND)] == allowed.split()


def test_a_selector_chooses_pods_that_name_nothing() -> None:
    expressions = [{"key": "tier", "operator": "In", "values": ["web"]}]
    for selector in (WEB, {"match_expressions": expressions}):
        policies = {"it": policy("anti-affinity", selector)}
        there = [(pod("there", tier="web"), "n0")]
        assert why_not(pod("one", tier="web"), "n0", there, policies, GROUND)
        assert not why_not(pod("one", tier="db"), "n0", there, policies, GROUND)


def test_what_may_have_counted_makes_even_what_would_not_be() -> None:
    policies, there = {"it": policy("balance")}, [(pod("there", "it"), "n0")]
    assert why_not(ME, "n0", there, policies, GROUND)
    elsewhere = [(pod(f"gone-{node}", "it"), node) for node in ("n1", "n2", "n3")]
    assert not why_not(ME, "n0", there, policies, GROUND, [*there, *elsewhere])


@pytest.mark.parametrize(
    ("it", "size", "possible"),
    [
        (policy("anti-affinity"), 3, True),
        (policy("anti-affinity", topology_key=ZONE), 3, False),
        (policy("balance", tasks=4), 3, True),
        (policy("co-location"), 3, True),
        (policy("data-locality", data=["d1"]), 3, True),
        (policy("data-locality", data=["nowhere"]), 1, False),
    ],
)
def test_whether_a_gang_may_be_anywhere(it: Policy, size: int, possible: bool) -> None:
    members = [pod(f"g-{number}", "it", gang="g") for number in range(size)]
    found = where(members, [], {"it": it}, GROUND)
    assert (found is not None) == possible


def test_members_that_are_to_be_near_others_are_not_content_with_each_other() -> None:
    policies = {"it": policy("co-location"), "full": policy("balance", tasks=4)}
    members = [pod(f"g-{number}", "it", "full", gang="g") for number in range(2)]
    there = [(pod("there", "it"), "n0")]
    assert where(members, there, policies, GROUND) is None
    assert where(members[:1], there, policies, GROUND) == ("n0",)


class Seen:
    """A history that is told of pods."""

    def __init__(self) -> None:
        self.history, self.version = History(GROUND, LATEST), 0

    def change(self, at: float, took: float = 0.0, **becomes: Policy | None) -> None:
        [(name, policy)] = becomes.items()
        self.history.end_change(self.history.begin_change(name, policy, at), at + took)

    def pod(self, at: float, name: str, node: str = "", *, gone: bool = False, gang: str = "", uid: str = "") -> None:
        labels = {"escher.dev/gang": gang} if gang else {}
        annotations = {"escher.dev/policy": "it"}
        metadata = {"name": name, "namespace": "y", "uid": uid or name, "labels": labels, "annotations": annotations}
        found = reduced({"metadata": metadata, "spec": {"nodeName": node}, "status": {}})
        self.version += 1
        self.history.see(Sighting(self.version, at, "Pod", "DELETED" if gone else "MODIFIED", found))

    def verdicts(self, now: float = 100.0) -> Verdicts:
        found = Verdicts()
        self.history.judge(found, now)
        return found


def test_a_binding_by_policies_that_were_replaced_long_ago_is_wrong_and_one_shortly_before_is_late() -> None:
    for since, wrong, late in ((0.3, 0, 1), (1.5, 1, 0)):
        seen = Seen()
        seen.change(1.0, it=policy("bin-packing"))
        seen.pod(5.0, "first", "n0")
        seen.change(10.0, it=policy("anti-affinity"))
        seen.pod(10.0 + since, "second", "n0")
        found = seen.verdicts()
        assert (found.judged, len(found.wrong), len(found.late)) == (2, wrong, late)
        assert found.late == pytest.approx([since] * late)


def test_a_change_that_is_not_answered_may_be_in_force_or_not() -> None:
    for node in ("n0", "n1"):
        seen = Seen()
        seen.change(1.0, it=policy("anti-affinity"))
        seen.pod(5.0, "first", "n0")
        seen.history.begin_change("it", policy("co-location"), 6.0)
        seen.pod(9.0, "second", node)
        assert not seen.verdicts().wrong


def test_a_gang_is_judged_from_its_first_member_on_and_a_policy_that_is_not_there_lets_nobody_pass() -> None:
    seen = Seen()
    seen.change(1.0, it=policy("bin-packing"))
    seen.pod(10.0, "g-0", "n0", gang="g")
    seen.change(10.1, it=None)
    seen.pod(12.0, "g-1", "n0", gang="g")
    seen.pod(12.0, "alone", "n0")
    [wrong] = seen.verdicts().wrong
    assert wrong.startswith("y/alone on n0: it does not exist")


def test_who_was_gone_before_is_in_nobodys_way_and_who_was_not_is() -> None:
    seen = Seen()
    seen.change(1.0, it=policy("anti-affinity"))
    seen.pod(2.0, "first", "n0")
    seen.pod(3.0, "first", "n0", gone=True)
    seen.pod(3.1, "second", "n0")
    seen.pod(3.2, "third", "n0")
    seen.pod(3.3, "second", "n0", gone=True)
    [wrong] = seen.verdicts().wrong
    assert "y/third on n0" in wrong
    assert "second of it is on n0" in wrong


def test_what_was_just_seen_is_judged_later_and_nothing_twice() -> None:
    seen = Seen()
    seen.change(1.0, it=policy("bin-packing"))
    seen.pod(5.0, "one", "n0")
    assert seen.verdicts(now=5.5).judged == 0
    assert seen.verdicts(now=6.5).judged == 1
    assert seen.verdicts(now=9.5).judged == 0


def test_who_waits_and_who_is_bound_in_part() -> None:
    seen = Seen()
    seen.pod(1.0, "alone")
    seen.pod(1.0, "g-0", gang="g")
    seen.pod(1.0, "g-1", gang="g")
    assert [[each.pod.name for each in unit] for unit in seen.history.waiting()] == [["alone"], ["g-0", "g-1"]]
    seen.pod(2.0, "g-1", "n0", gang="g")
    assert [[each.pod.name for each in unit] for unit in seen.history.waiting()] == [["alone"]]
    assert seen.history.in_part() == ["g"]
    seen.pod(3.0, "g-1", "n1", gang="g")
    assert seen.history.twice == ["g-1 was bound to n0, and then to n1"]


def test_the_same_seed_draws_the_same_changes_and_pods() -> None:
    def drawn(seed: int) -> list[object]:
        rng, policies = random.Random(seed), {"p0": policies_for("p0")[0]}
        calls = [(each.method, each.name, each.body) for each in (change(rng, policies) for _ in range(50))]
        return [*calls, *(bad(rng, policies) for _ in range(50)), *(unit(rng, "y", n) for n in range(50))]

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_patch_leads_to_what_it_says() -> None:
    rng = random.Random(1)
    for now in policies_for("s0"):
        made = patch("s0", now, rng)
        if made is None:
            continue
        assert made.body is not None
        assert made.becomes is not None
        said = {**now.parameters, **made.body["parameters"]}
        assert {key: value for key, value in said.items() if value is not None} == made.becomes.parameters
        assert made.becomes.selector == now.selector


def test_every_policy_can_be_changed_to_every_other_and_deleted() -> None:
    now = {"p0": policies_for("p0")[0]}
    found: list[Change] = all_changes(now)
    assert sum(each.name == "p0" for each in found) == len(policies_for("p0"))
    assert [each.name for each in found if each.becomes is None] == ["p0"]


def test_a_result_is_told_with_what_repeats_it() -> None:
    result = Result(Plan(changes=5, seed=31, patience=3.0), late=[0.1, 0.2])
    result.findings[WRONG] = ["y/one on n0: that"] * 9
    said = table(result) + details(result)
    assert "python -m loadtests.policy_changes --changes 5 --seed 31 --patience 3" in said
    assert "and 1 more" in said
    assert spread([0.1, 0.3, 0.2]) == "200 / 300 / 300 ms"
    assert spread([]) == "none"


def test_arguments_make_a_plan_and_bad_ones_are_refused() -> None:
    assert arguments(["--changes", "10", "--seed", "3"]).plan == Plan(changes=10, seed=3)
    for said in (["--changes", "0"], ["--yards", "51"], ["--latest", "0"]):
        with pytest.raises(SystemExit):
            arguments(said)
