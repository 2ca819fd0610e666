"""Plans in which the simulation once found something, made as small as they go; it is mended, and stays so."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.fault_simulation.plan import read
from loadtests.fault_simulation.run import run

PLANS = Path(__file__).with_name("found")
FOUND = {
    "bare-pods-of-one-zone": "the witness took pods without owner or labels for one, since their nodes are in one zone",
    "evicted-while-pods-were-not-followed": "pods left for a gang while the service could not follow pods: others took "
    "the room, and left for it too",
    "evicted-for-a-gang-that-a-restore-brought-back": "the witness did not know of a restore before kube-scheduler was "
    "started anew, and took a gang that was there again for gone",
    "places-exchanged": "members of a gang in part woke each other for a place that none of them was given",
    "places-held-for-ever": "members of a gang in part held places in turn, though there was never room for all",
    "saved-for-no-gang": "the simulation took room that is saved for a pod of no gang for a gang's that is gone",
    "evicted-for-a-gang-without-members": "a pod was evicted for a gang that was gone, and a silent watch did not tell",
    "let-in-and-evicted": "the witness did not see that the gang's Bindings had been refused",
    "half-expires-before-it-is-taken-back": "what a transaction wrote by half ended before it was taken back, and what "
    "was there before did not come back",
    "deleted-while-a-transaction-was-taken-back": "a transaction deleted what an earlier one, not in force, had "
    "deleted already, was answered as in force, and the object came back",
    "evicted-though-a-restore-had-unbound-it": "pods were evicted whose Bindings a restore of etcd had "
    "taken back, and no watch had told of it",
    "evicted-after-its-gang-had-room": "the rest of those chosen for a gang was evicted though it had found room; "
    "its Bindings were refused, and others had the place",
    "class-lost-while-a-pod-was-created": "the simulation took a pod for refused whose priority class a restore "
    "of etcd had taken away while it was being created",
    "woken-beside-a-node-that-is-gone": "a member whose node was not offered was woken by each of its own filter calls",
    "restored-while-a-watch-was-silent": "what a restored etcd said was never read: its version was the same again",
    "intent-stored-again-before-a-restart": "what was answered as in force was taken back by the next life, since the "
    "creation of its intent had arrived twice",
    "left-by-kube-scheduler-nominated": "kube-scheduler did not try a pod again whose last victim was gone when it "
    "wanted to delete it, which is a flaw of its own",
    "gated-again-by-a-restore": "members of a gang that a restore of etcd had put back behind our gate were never let "
    "through again",
    "bound-by-a-repeated-call": "bind calls that had been refused came a second time, and bound members to a node "
    "where kube-scheduler counted them no more",
    "tried-again-while-its-binding-is-written": "who was tried again, since kube-scheduler had given up its call, left "
    "its place to others, and its Binding arrived",
    "room-kept-that-others-took": "a gang stayed nominated where another scheduler had taken what its victims left",
    "arrived-after-a-refusal": "a Binding to whose first try nobody answered was refused, another was given its "
    "place, and the first try arrived",
    "unbound-by-a-restore-and-evicted": "a part was evicted of which a restore had taken the Binding back, and no "
    "watch had told",
    "created-again-after-its-deletion": "a creation arrived again after a later transaction had deleted the object",
    "beyond-a-quorum-that-has-ended": "after a restart a member waited for ever, for its gang's quorum had ended well "
    "and its Bindings do not name who came beside it",
    "evicted-once-more-after-a-restore": "a restore undid an eviction and its event, and the second eviction was told "
    "to nobody",
    "bound-while-no-watch-said-so": "what a pod held lapsed, though the watch was silent that would have said that it "
    "is bound, and another took the place that a policy keeps for one",
    "bound-one-by-one-after-a-restore": "a restore took Bindings back, members were bound anew and ended well one by "
    "one, and the last waited for ever",
    "given-up-and-counted-on-when-cut-off": "the simulation's mistake: kube-scheduler had given a bind up and counted "
    "on that room, which pods had taken that a service without a connection could not know of",
    "saved-for-a-gang-bound-in-part-by-a-restore": "the simulation's mistake: it counted a member that a restore had "
    "bound alone, and that has ended, to a quorum that was never whole",
    "nothing-more-of-what-was-too-little": "the simulation's mistake: a pod that asks for 0 cpu was bound where others "
    "had taken too much, as nobody could know",
    "many-events-in-no-time": "the simulation's mistake: 32 events of a watch made one long turn, which the service "
    "ends after 5 ms that virtual time does not show",
    "room-that-an-earlier-life-did-not-see": "after a restart a pod slept beside room that was known before the pod "
    "was listed",
    "counted-though-a-restore-undid-its-end": "a restore undid the end of both members of a gang, and one was bound "
    "alone: the other's end, which was not taken back yet, counted for the quorum",
    "room-of-one-that-kube-scheduler-forgot": "the simulation's mistake: pods that keep apart waited for room that "
    "kube-scheduler keeps for one that it has nominated, and does not try again",
    "evicted-again-while-bindings-are-refused": "a gang's Bindings were refused, another pod took the room that a "
    "victim had left, and was evicted for the same gang ten seconds later",
    "small-events-that-cost-much": "the simulation's mistake: four events of a watch made one long turn, which the "
    "service ends after 5 ms that virtual time does not show",
    "bound-by-an-answer-from-before-a-restore": "a Binding's answer came late, a restore had undone the Binding, and "
    "kube-scheduler's second call was answered with it: the pod was never tried again",
    "gated-again-by-a-restore-as-an-event-says": "a restore brought Escher's gate back, an event showed it before "
    "the list did, and the gang's members were woken behind their gates for ever",
    "refused-before-a-restore": "the witness's mistake: after a restore it knew nothing of a Binding that had been "
    "refused for good before, which is the proof of a part",
    "completed-in-two-attempts-then-half-lost": "the simulation's mistake: a gang was completed in two attempts, so "
    "the service removed the misleading one; two members went with their node, and the rest was taken for a part",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_is_found_no_more(name: str) -> None:
    result = run(read((PLANS / f"{name}.json").read_bytes()))
    assert result.is_clean, [FOUND[name], *map(str, result.findings)]


def test_each_plan_is_named() -> None:
    assert {each.stem for each in PLANS.iterdir()} == FOUND.keys()
