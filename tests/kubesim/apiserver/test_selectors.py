"""Selectors: the grammar of label selectors, and which fields can be selected by."""

from __future__ import annotations

import pytest

from kubesim import kinds
from kubesim.apiserver.machinery.failures import Failure
from kubesim.apiserver.machinery.selectors import field_selector, label_selector, of_label_selector
from kubesim.kinds import Json


def labelled(**labels: str) -> Json:
    return {"metadata": {"name": "x", "labels": labels}}


def chosen(text: str, obj: Json) -> bool:
    selector = label_selector(text)
    assert selector is not None
    return selector(obj)


@pytest.mark.parametrize(
    "text",
    [
        "a=1",
        "a==1",
        "a in (1,2)",
        "a",
        "!z",
        "z!=1",
        "z notin (1)",
        "a=1,b=",
        "a>0",
        "a<2",
        "a in (1), !z",
        "b in (,x)",
    ],
)
def test_this_selects_an_object_with_the_labels_a_and_b(text: str) -> None:
    assert chosen(text, labelled(a="1", b=""))


@pytest.mark.parametrize("text", ["a=2", "a!=1", "a notin (1,2)", "!a", "z", "z=1", "z in (1)", "a>1", "a<1", "b>0"])
def test_this_does_not_select_it(text: str) -> None:
    assert not chosen(text, labelled(a="1", b=""))


@pytest.mark.parametrize("text", ["a=b c", "a,", "-a", "a in b", "a in (b", "a===b", "a=-", "=a"])
def test_this_is_no_selector(text: str) -> None:
    with pytest.raises(Failure) as refusal:
        label_selector(text)
    assert refusal.value.code == 400


def test_nothing_selects_everything() -> None:
    assert label_selector(" ") is None
    assert field_selector(kinds.POD, "") is None


def test_a_label_selector_object_asks_the_same() -> None:
    selector = of_label_selector(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["x", "y"]},
                {"key": "c", "operator": "DoesNotExist"},
                {"key": "a", "operator": "Exists"},
                {"key": "d", "operator": "NotIn", "values": ["q"]},
            ],
        }
    )
    assert selector({"a": "1", "b": "x"})
    assert not selector({"a": "1", "b": "z"})
    assert not selector({"a": "1", "b": "x", "c": ""})
    assert not of_label_selector(None)({})
    assert of_label_selector({})({})


def test_pods_are_selected_by_node_scheduler_and_phase() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n", "schedulerName": "s"},
        "status": {"phase": "Running"},
    }
    unbound = {"metadata": {"name": "q"}, "spec": {}}
    for text in ("spec.nodeName=n", "spec.nodeName!=", "status.phase!=Failed,spec.schedulerName==s", "metadata.name=p"):
        selector = field_selector(kinds.POD, text)
        assert selector is not None
        assert selector(pod)
    waiting = field_selector(kinds.POD, "spec.nodeName=")
    assert waiting is not None
    assert waiting(unbound)


def test_nodes_are_selected_by_whether_they_may_be_used() -> None:
    selector = field_selector(kinds.NODE, "spec.unschedulable=false")
    assert selector is not None
    assert selector({"metadata": {"name": "n"}})
    assert not selector({"metadata": {"name": "n"}, "spec": {"unschedulable": True}})


def test_events_are_selected_by_what_they_are_about_under_both_names() -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "p", "kind": "Pod"}, "reason": "R", "source": {}}
    for kind, text in ((kinds.EVENT, "involvedObject.name=p,reason=R"), (kinds.EVENTS, "regarding.name=p")):
        selector = field_selector(kind, text)
        assert selector is not None
        assert selector(event)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(kinds.POD, "spec.foo=1"), (kinds.NODE, "spec.nodeName=1"), (kinds.CONFIG_MAP, "data=1"), (kinds.POD, "foo")],
)
def test_other_fields_cannot_be_selected_by(kind: kinds.Kind, text: str) -> None:
    with pytest.raises(Failure) as refusal:
        field_selector(kind, text)
    assert refusal.value.code == 400
