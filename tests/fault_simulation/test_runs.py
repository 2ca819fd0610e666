"""Runs of plans: nothing is found in the service as it is, the same plan is the same history, and bugs are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.fault_simulation.__main__ import arguments, details, made_smaller, main
from loadtests.fault_simulation.__main__ import table as table_of_runs
from loadtests.fault_simulation.drawing import plan_of
from loadtests.fault_simulation.histories import differing
from loadtests.fault_simulation.history import without_words
from loadtests.fault_simulation.mutants import MUTANTS
from loadtests.fault_simulation.mutation import Trial, Verdict, table, tried
from loadtests.fault_simulation.plan import VERSIONS, Fault, Plan, Work, read, written
from loadtests.fault_simulation.run import Finding, run

QUIET = Plan(7, (Work("gang", "train", 0.5, size=3, cpu=2), Work("resource", "slots", 0.1, capacity=2)), ())
MANY_FAULTS = tuple(Fault("delay-answer", 0.1 * number, 0.01, of="bindings", skip=9) for number in range(4))
NOISY = Plan(
    7,
    (*QUIET.works, Work("pods", "alone", 0.7, lasts=20.0)),
    (*MANY_FAULTS, Fault("kill-service", 0.51, 1.5, losing=True)),
)


OF_REPLICAS = (0, 6, 12)


@pytest.mark.parametrize(
    "seed", [*range(1, 5), *(pytest.param(each, marks=pytest.mark.longer) for each in OF_REPLICAS)]
)
def test_nothing_is_found_under_the_faults_of_a_seed(seed: int) -> None:
    result = run(plan_of(seed))
    assert result.is_clean, details(result)
    assert result.looks > 100
    assert len(result.faults) == len(result.plan.faults)


HISTORIES = Path(__file__).parents[1] / "frozen/histories.txt"
MEANT = "if it is meant: python -m loadtests.fault_simulation --seeds 1000 --record tests/frozen/histories.txt"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_nothing_is_found_under_the_faults_of_a_hundred_seeds(first: int) -> None:
    results = [run(plan_of(seed)) for seed in range(first, first + 100)]
    for result in results:
        assert result.is_clean, details(result)
    assert not differing(HISTORIES.read_text(), results), MEANT


def test_the_service_behaves_as_recorded() -> None:
    assert not differing(HISTORIES.read_text(), [run(plan_of(seed)) for seed in range(10)]), MEANT


def test_what_was_asked_for_is_there_where_nothing_goes_wrong() -> None:
    result = run(QUIET)
    assert result.is_clean, details(result)
    assert (result.bound, result.evicted, result.lives) == (3, 0, 2)


def test_the_same_plan_is_the_same_history_and_another_is_another() -> None:
    first, again, other = run(NOISY), run(read(written(NOISY))), run(QUIET)
    assert (first.digest, first.looks, first.virtual_seconds) == (again.digest, again.looks, again.virtual_seconds)
    assert first.digest != other.digest
    assert first.lives == 3


def test_the_service_ends_in_order_pods_are_deleted_and_a_node_stays_away() -> None:
    faults = (
        Fault("end-service", 0.51, 1.5),
        Fault("delete-pods", 6.0, of="alone", skip=1, times=2),
        Fault("lose-node", 8.0, of="node-0", losing=True),
    )
    result = run(Plan(7, (*QUIET.works, Work("pods", "alone", 3.0, size=3)), faults))
    assert result.is_clean, details(result)
    assert (result.bound, result.evicted, result.lives) == (6, 0, 3)


def test_a_leader_that_loses_its_lease_alone_is_followed_by_another() -> None:
    plan = Plan(6, (Work("gang", "train", 8.0, size=3, cpu=2),), (Fault("cut-off-lease", 1.0, 10.0),), replicas=2)
    result = run(plan)
    assert result.is_clean, details(result)
    assert (result.bound, result.lives) == (3, 4)
    with MUTANTS["takes-over-at-once"].put_in():
        found = run(plan)
    assert [each.kind for each in found.findings][:1] == ["fence"], details(found)


@pytest.mark.parametrize("losing", [True, False])
@pytest.mark.parametrize("of", VERSIONS)
def test_a_restore_changes_what_there_is_and_is_found_out(of: str, losing: bool) -> None:
    """The gang is bound since, and the resource another; pods that ran then run again."""
    works = (*QUIET.works, Work("resource", "slots", 9.0, capacity=4), Work("pods", "alone", 1.0, lasts=6.0))
    result = run(Plan(7, works, (Fault("restore", 0.5, 30.0, of=of, losing=losing),)))
    assert result.is_clean, details(result)
    assert result.restored > 3
    assert result.faults == ["restore"]


@pytest.mark.parametrize("of", ["watches", "watch of pods"])
def test_watches_that_fall_silent_or_end_with_410_again_and_again_hide_nothing(of: str) -> None:
    late = Work("gang", "late", 20.0, size=3, cpu=2)
    for fault in (Fault("silence-watches", 10.0, of=of), Fault("expire-watches", 10.0, of=of, times=30)):
        result = run(Plan(7, (*QUIET.works, late), (fault, Fault("break-watches", 10.1))[: 1 + (fault.times > 1)]))
        assert result.is_clean, details(result)
        assert result.bound == 6


SLOTS = Work("resource", "slots", 0.1, capacity=2)
OTHERS = Work("foreign", "others", 4.0, cpu=2)
UNKIND = [
    # kube-scheduler tries the pod again, while the Binding that it has given up is still to be refused.
    (
        "second-bind-succeeds",
        "forgotten",
        Plan(
            7,
            (SLOTS, Work("pods", "alone", 2.0, asks="slots")),
            (Fault("time-out-call", 1.5, 1.0, of="bind"), Fault("refuse", 1.5, 6.0, of="bindings")),
        ),
    ),
    # Others take the room of a pod that is tried again and again, and of half a gang.
    (
        "refused-bind-keeps-room",
        "ledger",
        Plan(
            7,
            (SLOTS, Work("pods", "alone", 2.0, asks="slots", cpu=4), OTHERS),
            (Fault("refuse", 1.5, of="bindings", times=40),),
            nodes=1,
        ),
    ),
    (
        "attempt-needs-one",
        "in part",
        Plan(
            7,
            (Work("gang", "train", 2.0, size=2, cpu=4), OTHERS),
            (Fault("refuse", 1.5, of="bindings", skip=1, times=40),),
            nodes=2,
        ),
    ),
    # What has the room goes when the backup is made, and is there again afterwards.
    (
        "list-leaves-pods",
        "ledger",
        Plan(
            7,
            (Work("foreign", "others", 1.0, lasts=11.0, cpu=4), Work("pods", "alone", 5.0, cpu=4)),
            (Fault("restore", 8.0, 30.0, of="on"),),
            nodes=1,
        ),
    ),
]


NOT_FOUND = {
    "plan-in-part": "a member that has lost its place is turned back and tried again, and its gang is planned anew",
    "older-is-believed": "the next event, or a refused write, puts it right: only the service changes what is meant",
}
"""Why no seed shows these bugs: see docs/mutation.md."""


class TestABugThatIsPutIn:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [("barrier-one-short", "quorum"), ("keys-stay", "ledger"), ("deleted-pod-holds", "ledger")],
    )
    def test_is_found_and_taken_out_again(self, name: str, kind: str) -> None:
        works = (
            Work("gang", "train", 0.5, size=3, cpu=2),
            Work("pods", "alone", 0.7, lasts=5.0),
            Work("resource", "slots", 0.1, capacity=2),
            Work("resource", "slots", 9.0),
        )
        plan = Plan(7, works, ())
        with MUTANTS[name].put_in():
            found = run(plan)
        assert [each.kind for each in found.findings][:1] == [kind], details(found)
        assert run(plan).is_clean

    @pytest.mark.parametrize(("name", "kind", "plan"), UNKIND, ids=[name for name, _, _ in UNKIND])
    def test_is_found_where_the_world_is_unkind_enough(self, name: str, kind: str, plan: Plan) -> None:
        with MUTANTS[name].put_in():
            found = run(plan)
        assert [each.kind for each in found.findings][:1] == [kind], details(found)
        right = run(plan)
        assert right.is_clean, details(right)
        assert len(right.faults) == len(plan.faults)

    @pytest.mark.parametrize("name", MUTANTS)
    def test_changes_what_there_is(self, name: str) -> None:
        with MUTANTS[name].put_in():
            pass

    def test_is_told_with_how_many_seeds_it_took(self) -> None:
        assert tried(Trial("binding-without-attempt", 1, 6)).is_found
        missed = Verdict("keys-stay", 3)
        told = table([missed, Verdict("barrier-one-short", 2, 1, "quorum", "one is not there")])
        assert "| `barrier-one-short` | The barrier opens when" in told
        assert "not in 3" in told
        assert "1 of 2 bugs were found" in told

    def test_there_are_enough_of_them(self) -> None:
        assert len(MUTANTS.keys() - NOT_FOUND) >= 30

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("name", [name for name in MUTANTS if name not in NOT_FOUND])
    def test_is_found_within_some_hundred_seeds(self, name: str) -> None:
        assert tried(Trial(name, 0, 400)).is_found


class TestWhatFails:
    def test_is_made_smaller_and_replayed_from_its_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "failing.json"
        with MUTANTS["deleted-pod-holds"].put_in():
            smaller = made_smaller(run(NOISY))
            assert [each.name for each in smaller.plan.works] == ["alone"]
            assert smaller.plan.faults == ()
            file.write_bytes(written(smaller.plan))
            assert main(["--replay", str(file), "--no-shrinking", "--out", str(tmp_path)]) == 1
        told = capsys.readouterr()
        assert smaller.digest in told.out
        assert "found at" in told.out
        assert f"--replay {tmp_path / 'failing-7.json'}" in told.err
        assert main(["--replay", str(file)]) == 0

    def test_is_in_the_table_with_its_seed(self) -> None:
        result = run(QUIET)
        result.findings.append(Finding("ledger", 3.0, "node-0 has too much"))
        assert "seed 7: ledger: node-0 has too much" in table_of_runs([result])


class TestTheCommand:
    def test_records_histories_and_says_which_differ(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file, seeds = tmp_path / "histories.txt", ["--seeds", "2", "--first-seed", "4", "--jobs", "1"]
        assert main([*seeds, "--record", str(file)]) == 0
        four, five = file.read_text().splitlines()
        assert (four.split()[0], five.split()[0]) == ("4", "5")
        assert main([*seeds, "--against", str(file)]) == 0
        file.write_text(f"{four}\n5 0123456789abcdef\n")
        assert main([*seeds, "--against", str(file)]) == 1
        assert "seed 5 has another history" in capsys.readouterr().err

    def test_an_order_or_a_decision_that_differs_is_another_history_and_words_are_none(self) -> None:
        said = {"Error": "a gang of its own", "FailedNodes": {"n1": "no room here"}}
        assert without_words(said) == {"Error": "", "FailedNodes": {"n1": ""}}
        assert without_words({"Error": "other words", "FailedNodes": {"n1": "or these"}}) == without_words(said)
        assert without_words({"NodeNames": ["n1", "n2"]}) != without_words({"NodeNames": ["n2", "n1"]})

    def test_says_what_was_carried_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--seeds", "1", "--first-seed", "4", "--jobs", "1"]) == 0
        assert "seeds in which something was found:" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "given", [["--seeds", "0"], ["--first-seed", "-1"], ["--out", "/nowhere/at/all"], ["--against", "/none"]]
    )
    def test_refuses_what_makes_no_sense(self, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            arguments(given)
        assert given[0] in capsys.readouterr().err

    def test_refuses_a_file_that_holds_no_plan_and_a_bug_that_there_is_not(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "no-plan.json"
        file.write_text("{}")
        assert main(["--replay", str(file)]) == 2
        assert main(["--mutants", "--only", "no-such-bug", "--jobs", "1"]) == 2
        assert "no-such-bug" in capsys.readouterr().err

    def test_explains_each_fault(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            arguments(["--help"])
        assert "late-request: the service is told" in capsys.readouterr().out
