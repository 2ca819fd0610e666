"""Mistakes of a set-up, one at a time: each is found by its check alone, and gone when it is mended as that says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from extender.doctor.checks import CHECKS
from extender.doctor.facts import Part
from extender.doctor.findings import Report, Severity, examine
from extender.doctor.from_service import PARTS
from tests.doctor.mistakes import MISTAKES, Mistake
from tests.doctor.set_up import GATED, KEY, ORDINARY, OURSELVES, SetUp, pod


def looked_at(set_up: SetUp) -> Report:
    return examine(set_up.facts(), CHECKS)


def found(set_up: SetUp) -> set[str]:
    return {each.check for each in looked_at(set_up).findings}


def test_a_sound_set_up_has_no_findings_and_all_of_it_is_looked_at() -> None:
    report = looked_at(SetUp())
    assert report.findings == ()
    assert report.skipped == ()


def test_what_is_shipped_over_https_is_sound_too() -> None:
    set_up = SetUp()
    set_up.over_https()
    set_up.settings["host"] = "0.0.0.0"
    assert looked_at(set_up).findings == ()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.check)
def test_a_mistake_is_found_by_its_check_alone_and_mended_as_that_says(mistake: Mistake) -> None:
    set_up = SetUp()
    mistake.make(set_up)
    findings = looked_at(set_up).findings
    assert {each.check for each in findings} == {mistake.check}
    assert any(mistake.tells in each.wrong and mistake.says in each.mend for each in findings), findings
    assert {each.severity is Severity.NOTE for each in findings} == {mistake.is_note}
    mistake.mend(set_up)
    assert looked_at(set_up).findings == ()


def test_every_check_finds_a_mistake_here() -> None:
    both = {"service-unreachable", "gate-without-service"}
    assert {each.check for each in MISTAKES} | both == {each.name for each in CHECKS}
    assert [name for name, times in Counter(each.name for each in CHECKS).items() if times > 1] == []


def test_pods_at_the_gate_are_told_when_no_service_is_there_that_would_take_it_off() -> None:
    set_up = SetUp()
    set_up.service = {"address": "http://127.0.0.1:1", "unreachable": "connection refused"}
    set_up.unread = dict.fromkeys(PARTS, "no service answers")
    report = looked_at(set_up)
    assert [each.check for each in report.findings] == ["gate-without-service", "service-unreachable"]
    assert "team/late-0 wait at Escher's gate" in report.findings[0].wrong
    assert "escher doctor --release-gates" in report.findings[0].mend
    set_up.pods.pop(2)
    assert found(set_up) == {"service-unreachable"}


def test_a_pod_of_ours_depends_on_us_by_its_scheduler_by_our_gate_or_by_what_it_asks_for() -> None:
    for more in (GATED, {"containers": [{"resources": {"requests": {KEY: "1"}}}]}):
        set_up = SetUp()
        set_up.pods.append(pod("escher-0", node="n3", scheduler="another", metadata=OURSELVES, marked=False, **more))
        assert found(set_up) == {"needs-itself"}
    set_up = SetUp()
    set_up.pods.append(pod("escher-0", node="n3", scheduler="default-scheduler", metadata=OURSELVES, marked=False))
    assert found(set_up) == set()
    # Who places it asks the service about every pod by then.
    set_up.profile("escher-ledger")["schedulerName"] = "default-scheduler"
    assert "needs-itself" in found(set_up)
    set_up.every["ignorable"] = True
    assert "needs-itself" not in found(set_up)


@pytest.mark.parametrize("part", Part)
def test_what_could_not_be_read_is_told_with_the_checks_that_were_left_out_and_nothing_is_concluded(part: Part) -> None:
    set_up = SetUp()
    for mistake in MISTAKES:
        if mistake.check in {"definition-missing", "permission-missing", "clock-skew", "foreign-scheduler"}:
            mistake.make(set_up)
    set_up.unread = {part: "forbidden"}
    report = looked_at(set_up)
    [skipped] = report.skipped
    assert (skipped.part, skipped.why) == (part, "forbidden")
    assert set(skipped.checks) == {each.name for each in CHECKS if part in each.needs}
    assert skipped.checks
    assert not {each.check for each in report.findings} & set(skipped.checks)


def test_mistakes_come_before_notes() -> None:
    set_up = SetUp()
    set_up.scheduler.pop("podMaxBackoffSeconds")
    set_up.every["ignorable"] = True
    report = looked_at(set_up)
    assert [each.severity for each in report.findings] == [Severity.MISTAKE, Severity.NOTE]
    assert report.mistakes == 1


def without_ours(set_up: SetUp) -> None:
    """The cluster's own scheduler, which knows nothing of Escher."""
    set_up.schedulers[1] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
        "extenders": [{"urlPrefix": "http://10.0.0.9:9000/gpu", "filterVerb": "f", "bindVerb": "b", "ignorable": True}],
    }


def the_clusters_own(set_up: SetUp) -> None:
    """It is given the extender, and keeps its lease and its name."""
    set_up.scheduler["profiles"].append({"schedulerName": "default-scheduler"})
    set_up.scheduler["leaderElection"] = {"leaderElect": True}


def without_marks(set_up: SetUp) -> None:
    """Kubernetes 1.35, one entry for every pod, no pod marked and no policy for that."""
    first, second = set_up.scheduler["extenders"]
    more = {name: second[name] for name in ("prioritizeVerb", "bindVerb", "weight")}
    set_up.scheduler["extenders"] = [{**first, **more, "filterVerb": "filter"}]
    set_up.minor = 35
    set_up.policies, set_up.bound = [], set()
    set_up.pods.append(pod("late-1", node=None, marked=False))


def marks_behind_a_gate(set_up: SetUp) -> None:
    """Kubernetes 1.35, with the feature gate by which it marks pods too."""
    set_up.minor = 35


def deleted_under_way(set_up: SetUp) -> None:
    """Resources that are no one's to write: on their way out, refused, just created."""
    for name, metadata in (
        ("out", {"deletionTimestamp": "2027-01-31T11:00:00Z"}),
        ("new", {"creationTimestamp": "2027-01-31T11:59:30Z"}),
    ):
        old = {"namespace": "team", "name": name, "creationTimestamp": "2027-01-01T00:00:00Z"}
        set_up.resources.append({"metadata": old | metadata, "spec": {"nodes": {"n2": 1}}})
    refused = {"conditions": [{"type": "Ready", "status": "False", "reason": "NameTaken"}]}
    taken = {"metadata": {"namespace": "team", "name": "taken"}, "spec": {"nodes": {"n2": 1}}, "status": refused}
    set_up.resources.append(taken)


def chosen_by_rule(set_up: SetUp) -> None:
    """Units that status has, of a shared name; a named node with 0 has none."""
    ready = [{"type": "Ready", "status": "True"}]
    spec = {"capacity": 2, "nodeSpec": {}, "shared": True, "nodes": {"n2": 0}}
    status = {"nodes": {"n1": 2, "n2": 2}, "conditions": ready}
    set_up.resources.append({"metadata": {"namespace": "team", "name": "lic"}, "spec": spec, "status": status})
    for field in ("capacity", "allocatable"):
        set_up.nodes[0]["status"][field]["escher.dev/lic"] = "2"


def no_own_limits(set_up: SetUp) -> None:
    """A client without a limit of its own."""
    set_up.scheduler["clientConnection"]["qps"] = -1


def narrower_marks(set_up: SetUp) -> None:
    """The mark policy for some namespaces alone, under another name."""
    policy = next(each for each in set_up.policies if each["metadata"]["name"] == "mark-pods.escher.dev")
    policy["metadata"]["name"] = "team-mark"
    policy["spec"]["matchConditions"].append({"name": "team", "expression": "object.metadata.namespace == 'team'"})
    set_up.bound.add("team-mark")


@pytest.mark.parametrize(
    "change",
    [
        *(without_ours, the_clusters_own, without_marks, deleted_under_way, chosen_by_rule, no_own_limits),
        *(narrower_marks, marks_behind_a_gate),
    ],
    ids=lambda each: each.__name__,
)
def test_what_may_be_so_is_no_mistake(change: Callable[[SetUp], None]) -> None:
    set_up = SetUp()
    change(set_up)
    assert looked_at(set_up).findings == ()


def test_an_ordinary_pod_needs_no_mark_and_one_that_has_ended_is_past_mending() -> None:
    set_up = SetUp()
    set_up.pods.append(pod("done", node=None, marked=False) | {"status": {"phase": "Failed"}})
    set_up.pods.append(
        pod("timed", node=None, marked=False, metadata=ORDINARY | {"annotations": {"escher.dev/run-seconds": "3"}})
    )
    assert found(set_up) == set()


@pytest.mark.parametrize(
    "without", ["extenders", "profiles", "leaderElection", "clientConnection", "apiVersion", "podMaxBackoffSeconds"]
)
def test_a_part_that_is_missing_or_empty_in_the_file_is_no_trouble_to_any_check(without: str) -> None:
    set_up = SetUp()
    set_up.scheduler[without] = None
    nothing = looked_at(set_up)
    set_up.scheduler.pop(without)
    left_out = looked_at(set_up)
    assert [each.check for each in nothing.findings] == [each.check for each in left_out.findings] != []
