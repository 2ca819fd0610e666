"""What the pods of a gang have to say, under either approach."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.gang_ask import LARGEST_GANG, GangAsk, read_gang_ask
from extender.core.names import DOMAIN, GangKey, in_domain
from extender.esl import Approach, gang
from extender.kube.names import InvalidName
from extender.kube.quantities import InvalidQuantity

MARK = {"escher.dev/managed": "0"}

POD: dict[str, Any] = {
    "metadata": {"name": "train-0", "labels": {"app": "train"}},
    "spec": {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}]
    },
}


def test_one_pod_serves_both_approaches_and_is_not_changed_itself() -> None:
    ask = gang("train", 8, {"cpu": "4"}, run="r1")
    extender = ask.requirement(3, Approach.EXTENDER).attach(POD)
    assert extender["spec"]["schedulerName"] == "escher"
    assert extender["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "memory": "1Gi", **MARK},
        "limits": MARK,
    }
    pure = ask.requirement(3, Approach.EXTENDED_RESOURCES).attach(POD)
    assert pure["spec"]["schedulerName"] == "escher-resources"
    # CPU is counted once: by the ghost.
    assert pure["spec"]["containers"][0]["resources"] == {
        "requests": {"memory": "1Gi", "cpu": "0", "app.escher.dev/default.train-3-r1": "1"},
        "limits": {"app.escher.dev/default.train-3-r1": "1"},
    }
    for pod in (extender, pure):
        metadata = pod["metadata"]
        assert read_gang_ask("default", metadata["labels"], metadata["annotations"], None, longest_wait=60) == GangAsk(
            GangKey("default", "train"), 8, 30
        )
        assert metadata["labels"]["app"] == "train"
    assert "schedulerName" not in POD["spec"]


def test_a_device_is_asked_for_as_request_and_limit() -> None:
    ask = gang("train", 1, {"nvidia.com/gpu": "1", "cpu": "1"})
    resources = ask.requirement(0, Approach.LEDGER).attach(POD)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "1", **MARK}
    assert resources["requests"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1", **MARK}


def test_what_the_ghost_holds_is_taken_out_of_every_container() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}]}}
    made = gang("train", 1, {"cpu": "2"}, run="r1").requirement(0, Approach.EXTENDED_RESOURCES).attach(pod)
    assert made["spec"]["containers"][1]["resources"] == {"limits": {}, "requests": {"cpu": "0"}}


def test_what_the_pod_says_itself_stays() -> None:
    said: dict[str, Any] = {
        "metadata": {"annotations": {"team": "ml"}, "labels": {"app": "train"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}],
            "initContainers": [{"name": "first", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}],
        },
    }
    made = gang("train", 1, {"cpu": "2"}, run="r1").requirement(0, Approach.EXTENDED_RESOURCES).attach(said)
    assert made["metadata"]["annotations"]["team"] == "ml"
    key = "app.escher.dev/default.train-0-r1"
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi", key: "1"}
    # What the ghost holds is taken out of these too.
    assert made["spec"]["initContainers"][0]["resources"] == {"requests": {"cpu": "0"}, "limits": {}}


def test_without_a_ghost_nothing_is_taken_out() -> None:
    ask = gang("train", 1, {"cpu": "2"}, run="r1")
    assert ask.requirement(0, Approach.EXTENDER).without == frozenset()
    assert ask.requirement(0, Approach.EXTENDED_RESOURCES).without == {"cpu"}


def test_the_gate_is_put_on_where_somebody_takes_it_off_and_others_stay() -> None:
    ask = gang("train", 2, {"cpu": "2"}, gated=True, run="r1")
    made = ask.requirement(0, Approach.EXTENDER).attach(POD)
    assert made["spec"]["schedulingGates"] == [{"name": "escher.dev/gang"}]
    queued = {"spec": {**POD["spec"], "schedulingGates": [{"name": "queue"}, {"name": "escher.dev/gang"}]}}
    again = ask.requirement(0, Approach.LEDGER).attach(queued)
    assert again["spec"]["schedulingGates"] == [{"name": "queue"}, {"name": "escher.dev/gang"}]
    for without in (
        ask.requirement(0, Approach.EXTENDED_RESOURCES),
        gang("train", 2, {"cpu": "2"}).requirement(0, Approach.EXTENDER),
    ):
        assert "schedulingGates" not in without.attach(POD)["spec"]


def test_keys_are_unique_per_gang_and_bundle_or_one_for_a_jobs_template() -> None:
    ask = gang("train", 3, {"cpu": "1"}, namespace="team-a")
    assert [ask.key(bundle) for bundle in range(3)] == [f"app.escher.dev/team-a.train-{n}" for n in range(3)]
    shared = gang("train", 3, {"cpu": "1"}, one_key=True)
    assert {shared.key(bundle) for bundle in range(3)} == {"app.escher.dev/default.train-all"}
    own = gang("train", 2, [{"cpu": "1"}, {"cpu": "2"}])
    assert [own.requirement(bundle, Approach.EXTENDER).resources for bundle in (0, 1)] == [{"cpu": "1"}, {"cpu": "2"}]


def test_who_holds_the_room_is_asked_for_by_the_scheduler_that_is_named() -> None:
    ask = gang("train", 1, {"cpu": "2"}, scheduler="default-scheduler", run="r1")
    assert ask.requirement(0, Approach.EXTENDED_RESOURCES).scheduler_name == "default-scheduler"
    assert ask.requirement(0, Approach.EXTENDER).scheduler_name == "escher"
    assert ask.requirement(0, Approach.LEDGER).scheduler_name == "escher-ledger"


def test_a_member_says_that_it_asks_for_none_of_what_its_ghost_holds_where_that_may_be_said() -> None:
    ask = gang("train", 1, {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}, run="r1")
    assert ask.requirement(0, Approach.EXTENDED_RESOURCES).resources == {
        "cpu": "0",
        "memory": "0",
        "app.escher.dev/default.train-0-r1": "1",
    }


def test_each_run_has_keys_of_its_own() -> None:
    ask = gang("train", 2, {"cpu": "1"})
    assert ask.with_run("a1").key(1) == "app.escher.dev/default.train-1-a1"
    assert ask.with_run("b2").key(1) == "app.escher.dev/default.train-1-b2"
    assert ask.with_run("a1").with_run("b2") == ask.with_run("b2")
    assert gang("train", 2, {"cpu": "1"}, one_key=True, run="a1").key(0) == "app.escher.dev/default.train-all-a1"
    assert ask.run == ""


def test_members_of_ghosts_are_not_made_from_an_ask_that_nobody_runs() -> None:
    ask = gang("train", 2, {"cpu": "1"})
    with pytest.raises(ValueError, match="create them from the `spec` of its run"):
        ask.requirement(0, Approach.EXTENDED_RESOURCES)
    assert ask.requirement(0, Approach.EXTENDER).resources == {"cpu": "1"}


@pytest.mark.parametrize("run", ["A", "a.b", "a" * 13])
def test_a_token_of_a_run_is_a_short_label(run: str) -> None:
    with pytest.raises(InvalidName) as refused:
        gang("train", 1, {"cpu": "1"}, run=run)
    assert refused.value.field == "run"
    assert gang("train", 1, {"cpu": "1"}, run="a" * 12).run == "a" * 12


def test_a_token_for_which_the_name_has_no_room_is_refused() -> None:
    longest = gang("g" * (63 - len("default.") - len("-0-12345678")), 1, {"cpu": "1"})
    assert longest.with_run("12345678")
    with pytest.raises(InvalidName, match="has 64 characters"):
        longest.with_run("123456789")


def test_what_is_not_said_of_a_gang_is_usual() -> None:
    train = gang("train", 1, {"cpu": "1"}, one_key=True)
    assert (train.size, train.priority, dict(train.placement)) == (1, 0, {})
    assert (train.scheduler, train.run) == ("escher-resources", "")
    assert train.key(0) == "app.escher.dev/default.train-all"


def test_keys_are_in_the_domain_that_is_named() -> None:
    assert gang("train", 1, {"cpu": "1"}, domain="example.com").key(0) == "example.com/default.train-0"


def test_a_gang_may_be_as_large_as_is_said_and_no_larger() -> None:
    assert gang("train", LARGEST_GANG, {"cpu": "1"}).size == LARGEST_GANG
    with pytest.raises(ValueError, match=f"size is {LARGEST_GANG + 1}"):
        gang("train", LARGEST_GANG + 1, {"cpu": "1"})


def test_the_service_leaves_the_keys_alone_because_they_are_not_in_its_domain() -> None:
    assert not in_domain(gang("train", 1, {"cpu": "1"}).key(0), DOMAIN)


def test_a_name_that_is_too_long_is_refused_with_limit_and_length() -> None:
    longest = "g" * (63 - len("default.") - len("-99"))
    assert gang(longest, 100, {"cpu": "1"}).key(99)
    with pytest.raises(InvalidName, match="has 64 characters; the limit for the part after '/' is 63"):
        gang(longest, 101, {"cpu": "1"})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"size": 0, "each": {"cpu": "1"}}, "numbers from 1 to"),
        ({"size": 2, "each": [{"cpu": "1"}]}, "size is 2 with 1 bundles"),
        ({"size": 2, "each": {}}, "has no resources"),
        ({"size": 2, "each": {"app.escher.dev/default.x": "1"}}, "ghosts cannot hold"),
        ({"size": 2, "each": [{"cpu": "1"}, {"cpu": "2"}], "one_key": True}, "equal bundles"),
        ({"size": 1, "each": {"cpu": "1"}, "name": "A"}, "not a DNS label"),
        ({"size": 1, "each": {"cpu": "1"}, "namespace": "a.b"}, "not a DNS label"),
    ],
)
def test_a_senseless_ask_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        gang(**{"name": "train", **arguments})


@pytest.mark.parametrize(
    ("name", "namespace", "each", "field"),
    [
        ("Train", "default", {"cpu": "1"}, "gang"),
        ("train", "Team", {"cpu": "1"}, "namespace"),
        ("train", "default", {"app.escher.dev/default.data": "1"}, "resource"),
    ],
)
def test_a_name_that_is_refused_is_said_to_be_whose(
    name: str, namespace: str, each: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidName) as refused:
        gang(name, 1, each, namespace=namespace)
    assert refused.value.field == field


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidQuantity):
        gang("train", 1, {"cpu": "lots"})
    with pytest.raises(InvalidQuantity, match="cpu: '-1' is negative"):
        gang("train", 1, {"cpu": "-1"})
