"""The calls, of both clients, on a service in simulation."""

from __future__ import annotations

import functools
import inspect
import re
from itertools import count
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from escher_k8s import (
    AsyncEscher,
    BeingDeleted,
    Brake,
    Claim,
    Conflict,
    Escher,
    Invalid,
    NotFound,
    NotInForce,
    Owner,
    Problem,
    Release,
    SetResource,
    Unavailable,
    Unreachable,
    Unreached,
    VersionConflict,
)
from escher_k8s.calls import Calls
from escher_k8s.errors import BY_TYPE
from escher_k8s.management.calling import Call
from extender.adapters.http.api import create_api
from extender.adapters.http.problems import ProblemKind
from tests.adapters.http.fakes import NotedManagement, Ready
from tests.escher_k8s.conftest import Client, Stage

RUNS = count()
"""No two clients of these tests have the same; addresses of objects are used again."""


def test_a_resource_is_set_read_listed_and_deleted(client: Client) -> None:
    made = client.ask(lambda escher: escher.set_resource("data1", 4, node_spec="node-3", ttl_seconds=600))
    assert (made.key, made.nodes) == ("escher.dev/team-a.data1", {"node-3": 4})
    assert made.expires_at.tzinfo is not None
    assert client.ask(lambda escher: escher.get_resource("data1")) == made
    assert client.ask(lambda escher: escher.list_resources()) == [made]
    assert client.ask(lambda escher: escher.delete_resource("data1")) is None
    assert client.ask(lambda escher: escher.list_resources()) == []


def test_a_dry_run_changes_nothing(client: Client) -> None:
    made = client.ask(lambda escher: escher.set_resource("tried", 1, node_spec={}, num_nodes=2, dry_run=True))
    assert sum(made.nodes.values()) == 2
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.get_resource("tried"))


def test_a_version_that_does_not_hold_is_a_version_conflict(client: Client) -> None:
    client.ask(lambda escher: escher.set_resource("versioned", 1, node_spec="node-1"))
    with pytest.raises(VersionConflict) as refused:
        client.ask(lambda escher: escher.set_resource("versioned", 2, node_spec="node-1", if_version="1"))
    assert refused.value.status == 412
    with pytest.raises(VersionConflict):
        client.ask(lambda escher: escher.delete_resource("versioned", if_version="1"))
    found = client.ask(lambda escher: escher.get_resource("versioned"))
    assert client.ask(lambda escher: escher.delete_resource("versioned", if_version=found.version)) is None


def test_a_client_that_knows_its_node_need_not_name_one(client: Client) -> None:
    made = client.ask(lambda escher: escher.set_resource("own", 1, dry_run=True), node="node-2")
    assert made.nodes == {"node-2": 1}
    with pytest.raises(Invalid, match="node_spec") as refused:
        client.ask(lambda escher: escher.set_resource("own", 1, dry_run=True))
    assert refused.value.field == "node_spec"


def test_a_wrong_value_is_told_with_its_field(client: Client) -> None:
    with pytest.raises(Invalid) as refused:
        client.ask(lambda escher: escher.set_resource("data1", -1, node_spec="node-1"))
    error = refused.value
    assert (error.status, error.field, error.type) == (422, "capacity", "urn:escher:problem:invalid")
    assert str(error).startswith("capacity")
    assert error.detail in str(error)
    with pytest.raises(Invalid, match=r"nvidia\.com/gpu"):
        client.ask(lambda escher: escher.set_resource("nvidia.com/gpu", 1, node_spec="node-1"))
    with pytest.raises(Invalid) as owned:
        client.ask(lambda escher: escher.set_resource("data1", 1, owner=Owner("nobody", "")))
    assert owned.value.field == "owner.uid"


def test_a_call_may_name_another_namespace(client: Client) -> None:
    made = client.ask(lambda escher: escher.set_resource("elsewhere", 1, node_spec="node-1", namespace="default"))
    assert made.key == "escher.dev/default.elsewhere"
    assert "elsewhere" not in {each.name for each in client.ask(lambda escher: escher.list_resources())}
    client.ask(lambda escher: escher.delete_resource("elsewhere", namespace="default"))


def test_a_shared_resource_is_reached_by_saying_so(client: Client) -> None:
    made = client.ask(lambda escher: escher.set_resource("common", 1, node_spec="node-1", shared=True))
    assert made.key == "escher.dev/common"
    assert client.ask(lambda escher: escher.get_resource("common", shared=True)).shared
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.get_resource("common"))
    client.ask(lambda escher: escher.delete_resource("common", shared=True))


def test_the_cluster_state_has_every_node_and_who_holds_what(client: Client) -> None:
    client.ask(lambda escher: escher.set_resource("held", 3, node_spec="node-1"))
    client.ask(lambda escher: escher.transact([Claim("agent-1", "node-1", {"escher.dev/team-a.held": 2}, 60)]))
    assert {each.node for each in client.ask(lambda escher: escher.get_cluster_state())} > {"node-1", "node-2"}
    [row] = client.ask(lambda escher: escher.get_cluster_state(node="node-1"))
    assert row.available["escher.dev/team-a.held"] == 1
    assert row.capacity["cpu"] == 8
    [holder] = row.holders
    assert holder.units == {"escher.dev/team-a.held": 2}
    assert holder.until.tzinfo is not None
    client.ask(lambda escher: escher.transact([Release("agent-1"), SetResource("held", 0, "node-1")]))
    assert client.ask(lambda escher: escher.get_cluster_state(resource="escher.dev/team-a.held")) == []


def test_a_transaction_commits_all_or_nothing(client: Client) -> None:
    both = [SetResource("one", 1, "node-1"), SetResource("two", 1, "node-2", namespace="default")]
    done = client.ask(lambda escher: escher.transact(both, dry_run=True))
    assert (done.committed, done.conflicts) == ([0, 1], [])
    assert done.resources[1].key == "escher.dev/default.two"
    too_much = [Claim("agent-1", "node-1", {"cpu": 1}, 60), Claim("agent-2", "node-2", {"cpu": 99}, 60)]
    with pytest.raises(Conflict) as refused:
        client.ask(lambda escher: escher.transact(too_much))
    [conflict] = refused.value.conflicts
    assert (conflict.index, conflict.resource, conflict.asked, conflict.free) == (1, "cpu", 99, 8)
    done = client.ask(lambda escher: escher.transact(too_much, mode="incremental", dry_run=True))
    assert (done.committed, [each.index for each in done.conflicts]) == ([0], [1])


def test_a_policy_is_put_read_changed_listed_and_deleted(client: Client) -> None:
    web = {"match_labels": {"app": "web"}}
    made = client.ask(lambda escher: escher.put_policy("spread", "balance", {"tasks": 4}, web))
    assert (made.namespace, made.name, made.type, made.parameters) == ("team-a", "spread", "balance", {"tasks": 4})
    assert (made.ready, made.selector, made.pods) == (True, web, 0)
    assert made.in_force.parameters["max_skew"] == 1
    assert made.in_force.selector == [{"key": "app", "operator": "In", "values": ["web"]}]
    assert client.ask(lambda escher: escher.get_policy("spread")) == made
    assert client.ask(lambda escher: escher.list_policies()) == [made]
    with pytest.raises(VersionConflict):
        client.ask(lambda escher: escher.patch_policy("spread", {"parameters": {"tasks": 8}}, if_version="1"))
    changed = client.ask(
        lambda escher: escher.patch_policy("spread", {"parameters": {"tasks": 8}}, if_version=made.version)
    )
    assert (changed.parameters, changed.selector) == ({"tasks": 8}, web)
    assert client.ask(lambda escher: escher.put_policy("spread", "bin-packing", dry_run=True)).type == "bin-packing"
    assert client.ask(lambda escher: escher.get_policy("spread")).type == "balance"
    assert client.ask(lambda escher: escher.delete_policy("spread", if_version=changed.version)) is None
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.get_policy("spread"))


def test_a_policy_that_is_wrong_is_told_with_its_field_before_it_is_put(client: Client) -> None:
    good = client.ask(lambda escher: escher.validate_policy("soft", {"preferences": ["near"]}, name="tried"))
    assert (good.ready, good.name, good.version) == (True, "tried", "")
    for call in (
        lambda escher: escher.validate_policy("balance", {"max_skew": 0}),
        lambda escher: escher.put_policy("tried", "balance", {"max_skew": 0}),
    ):
        with pytest.raises(Invalid, match="not 0") as refused:
            client.ask(call)
        assert refused.value.field == "parameters.max_skew"
    assert client.ask(lambda escher: escher.list_policies()) == []


def test_every_type_of_policy_is_told_with_an_example_that_is_good(client: Client) -> None:
    types = client.ask(lambda escher: escher.list_policy_types())
    assert {"anti-affinity", "fair-share"} < {each.name for each in types}
    for each in types:
        assert each.summary
        assert each.parameters["additionalProperties"] is False
        told = client.ask(functools.partial(_validated, each.example))
        assert {"type": told.type, "parameters": told.parameters} == each.example


def test_a_policy_is_asked_and_what_it_answers_goes_into_a_pod(client: Client, stage: Stage) -> None:
    name = f"slots-{client._kind.__name__.lower()}"
    client.ask(lambda escher: escher.put_policy(name, "queue"))
    first = client.ask(lambda escher: escher.ask_policy(name, "a", needs={"cpu": 1}))
    second = client.ask(lambda escher: escher.ask_policy(name, "b", needs={"cpu": 1}))
    unit = f"escher.dev/team-a.{name}--unit"
    assert (first.resources, first.scheduler_name, first.notices) == ({unit: "1"}, "escher", ())
    assert first.effects == (f"{unit} becomes 1 on node-0",)
    attached = first.attach(_pod(f"{name}-a"))
    assert attached["metadata"]["labels"] == {f"esl.escher.dev/{name}": "a"}
    assert attached["spec"]["containers"][0]["resources"]["limits"][unit] == "1"
    stage.create(attached)
    stage.create(second.attach(_pod(f"{name}-b")))
    stage.pass_time(5)
    one = client.ask(lambda escher: escher.explain_pod(f"{name}-a"))
    other = client.ask(lambda escher: escher.explain_pod(f"{name}-b"))
    assert {one.waits, other.waits} == {False, True}
    assert client.ask(lambda escher: escher.ask_policy(name, "c", dry_run=True)).effects == ()
    client.ask(lambda escher: escher.delete_policy(name))


def test_several_policies_make_one_ask_and_one_that_pods_name_is_an_alternative(client: Client) -> None:
    client.ask(lambda escher: escher.put_policy("near", "bin-packing"))
    client.ask(lambda escher: escher.put_policy("fair", "shares", {"users": [{"name": "web"}]}))
    near = client.ask(lambda escher: escher.ask_policy("near", "a"))
    fair = client.ask(lambda escher: escher.ask_policy("fair", "a", "web"))
    assert near.attach(_pod("a"))["metadata"]["annotations"] == {"escher.dev/policy": "near"}
    both = (near & fair).attach(_pod("a"))["metadata"]
    assert both["annotations"] == {"escher.dev/policy": "near"}
    assert both["labels"] == {"esl.escher.dev/fair": "a", "group.escher.dev/fair": "web"}
    with pytest.raises(Invalid, match="'eve' is not a user") as refused:
        client.ask(lambda escher: escher.ask_policy("fair", "a", "eve"))
    assert refused.value.field == "task.group"
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.ask_policy("nobody", "a"))
    client.ask(lambda escher: escher.delete_policy("near"))
    client.ask(lambda escher: escher.delete_policy("fair"))


def test_one_whose_name_is_taken_is_not_in_force(client: Client) -> None:
    client.ask(lambda escher: escher.set_resource("mine--unit", 1, node_spec="node-1"))
    client.ask(lambda escher: escher.put_policy("mine", "queue"))
    with pytest.raises(NotInForce, match="team-a/mine--unit already exists and belongs to no policy"):
        client.ask(lambda escher: escher.ask_policy("mine", "a"))
    client.ask(lambda escher: escher.delete_policy("mine"))
    client.ask(lambda escher: escher.delete_resource("mine--unit"))


def _validated(said: dict[str, Any], escher: Any) -> Any:
    return escher.validate_policy(**said)


def test_what_was_read_before_may_no_longer_hold(client: Client) -> None:
    read = {each.node: each.sequence for each in client.ask(lambda escher: escher.get_cluster_state())}
    claim = Claim("agent-1", "node-2", {"cpu": 1}, 60)
    client.ask(lambda escher: escher.transact([claim], detection="sequence-number", read=read))
    again = Claim("agent-2", "node-2", {"cpu": 1}, 60)
    with pytest.raises(Conflict) as refused:
        client.ask(lambda escher: escher.transact([again], detection="sequence-number", read=read))
    assert refused.value.conflicts[0].node == "node-2"
    client.ask(lambda escher: escher.transact([Release("agent-1")]))


def test_a_wrong_operation_is_told_with_its_index(client: Client) -> None:
    with pytest.raises(Invalid) as refused:
        client.ask(lambda escher: escher.transact([Release("fine"), Release("not fine")]))
    assert refused.value.field == "operations[1].holder"


def test_gangs_are_listed_read_and_explained(client: Client, stage: Stage) -> None:
    run = next(RUNS)
    ask = client.ask(lambda escher: escher.gang(f"large-{run}", 3, {"cpu": "7"}))
    for number in range(2):
        stage.create(ask.attach(_pod(f"large-{run}-{number}")))
    stage.pass_time(8)
    name = ask.labels["escher.dev/gang"]
    found = client.ask(lambda escher: escher.get_gang(name))
    assert found in client.ask(lambda escher: escher.list_gangs())
    assert (found.quorum, [each.name for each in found.members]) == (3, [f"{name}-0", f"{name}-1"])
    told = client.ask(lambda escher: escher.explain_gang(name))
    assert told.waits
    assert name in told.subject
    assert told.remedies
    assert client.ask(lambda escher: escher.explain_pod(f"{name}-0")).waits
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.explain_pod("nobody"))


def test_what_an_explanation_has_tried_can_be_asked_again(client: Client, stage: Stage) -> None:
    run = next(RUNS)
    pod = _pod(f"wanting-{run}")
    pod["spec"]["schedulerName"] = "escher-ledger"
    pod["spec"]["containers"][0]["resources"] = {"limits": {f"escher.dev/team-a.rare-{run}": "1"}}
    stage.create(pod)
    stage.pass_time(8)
    name = pod["metadata"]["name"]
    told = client.ask(lambda escher: escher.explain_pod(name))
    assert told.since is not None
    assert told.remedies == [each.said for each in told.tried]
    changes = told.tried[0].changes
    assert changes[0]["op"] == "set-resource"
    question = {"kind": "pod", "namespace": "team-a", "name": name}
    assert client.ask(lambda escher: escher.what_if(question, changes=changes)).fits
    assert not client.ask(lambda escher: escher.what_if(question)).fits
    with pytest.raises(NotFound):
        client.ask(lambda escher: escher.explain_gang("nobody"))


def test_the_switches_is_read(client: Client) -> None:
    safety_switches = client.ask(lambda escher: escher.get_safety_switches())
    assert safety_switches.everywhere.gang_preemption
    assert not safety_switches.everywhere.observe_only
    old: Brake = client.ask(lambda escher: escher.get_brake())
    assert old == safety_switches
    assert (old.everywhere.evicts_parts, old.everywhere.preempts_for_gangs, old.everywhere.saves_room) == (True,) * 3


def test_the_quota_is_read(client: Client) -> None:
    quota = client.ask(lambda escher: escher.get_quota())
    assert (quota.namespace, quota.resources.limit, quota.units.limit) == ("team-a", 500, None)
    assert quota.domain.nodes is None
    assert quota.units.used >= quota.resources.used


def test_pods_with_an_ask_are_placed_as_asked(client: Client, stage: Stage) -> None:
    """Three members of seven CPUs, each with one of the places for data: all run."""
    name = f"train-{client._kind.__name__.lower()}"
    client.ask(lambda escher: escher.set_resource(f"{name}-data", 1, node_spec={}))
    ask = client.ask(lambda escher: escher.gang(name, 3, {"cpu": "1"}) & escher.resource_request(f"{name}-data"))
    for number in range(3):
        stage.create(ask.attach(_pod(f"{name}-{number}")))
    stage.pass_time(5)
    gang = client.ask(lambda escher: escher.get_gang(name))
    assert (gang.phase, len({each.node for each in gang.members} - {None})) == ("bound", 3)


# -- pages: more than the service gives at once


class Pages:
    """Two pages of gangs."""

    def __init__(self) -> None:
        self.asked: list[httpx.QueryParams] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.params)
        gang = {"namespace": "a", "name": f"g{len(self.asked)}", "phase": "bound", "quorum": 1, "members": []}
        following = "more" if len(self.asked) == 1 else None
        return httpx.Response(200, json={"items": [{**gang, "new": 1}], "continue": following})


def test_lists_are_read_to_the_end_and_what_is_new_is_skipped() -> None:
    pages = Pages()
    with Escher(transport=httpx.MockTransport(pages)) as escher:
        assert [each.name for each in escher.list_gangs()] == ["g1", "g2"]
    assert [each.get("continue") for each in pages.asked] == [None, "more"]


# -- errors that no service of ours would give


def _answering(answer: httpx.Response | Exception) -> Escher:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Escher("http://escher.test/", retry_for=0, transport=httpx.MockTransport(handle))


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (httpx.Response(502, text="<html>"), Problem, "the service answers 502"),
        (httpx.Response(503, json={"type": "urn:escher:problem:busy", "detail": "later"}), Unavailable, "^later$"),
        (httpx.Response(404, json={"detail": "no such page"}), NotFound, "^no such page$"),
        (httpx.Response(409, json={"type": "urn:escher:problem:being-deleted", "title": "x"}), BeingDeleted, "^x$"),
        (httpx.Response(418, json=[1]), Problem, "the service answers 418"),
        (httpx.Response(301), Problem, "the service answers 301"),
        (httpx.Response(200, text="hello"), Unreachable, "not an Escher service"),
        (httpx.Response(200, json={"key": 4}), Unreachable, "not an Escher service"),
        (httpx.ConnectError("refused"), Unreached, "http://escher.test cannot be reached: refused"),
        (httpx.ReadTimeout("slow"), Unreachable, "did not answer in time"),
    ],
)
def test_what_else_may_go_wrong_is_told(answer: httpx.Response | Exception, kind: type[Exception], said: str) -> None:
    with _answering(answer) as escher, pytest.raises(kind, match=said) as refused:
        escher.get_resource("data1")
    assert type(refused.value) is kind


def test_a_service_that_is_busy_says_when_to_come_again() -> None:
    with _answering(httpx.Response(503, headers={"Retry-After": "7"})) as escher, pytest.raises(Unavailable) as refused:
        escher.get_resource("data1")
    assert refused.value.retry_after == 7


def test_every_problem_of_the_service_has_an_exception() -> None:
    assert set(BY_TYPE) == {kind.uri.rpartition(":")[2] for kind in ProblemKind}


# -- two clients, one API


def _calls() -> dict[str, Call[..., Any]]:
    return {name: each for name, each in vars(Calls).items() if isinstance(each, Call)}


def test_the_service_has_nothing_that_cannot_be_called() -> None:
    document = create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry()).openapi()
    there = {
        (method.upper(), re.sub(r"{[^}]*}", "{}", path).removeprefix("/v1/"))
        for path, methods in document["paths"].items()
        if path.startswith("/v1/")
        for method in methods
    }
    called = set()
    for steps in _calls().values():
        names = [name for name, each in inspect.signature(steps).parameters.items() if each.default is each.empty]
        values: dict[str, Any] = {
            "name": "{}",
            "capacity": 1,
            "operations": [],
            "type": "balance",
            "changes": {},
            "task": "t",
        }
        maker = Escher(namespace="{}")
        request = next(steps._steps(maker, **{name: values[name] for name in names[1:]}))
        maker.close()
        called.add((request.method, "/".join(request.path)))
    # What is followed is no call, for it does not end; a dump is a file for people; `brake` is an old name.
    assert called | {("GET", "events"), ("GET", "state-dump"), ("GET", "brake")} == there


@pytest.mark.parametrize("name", sorted(_calls()))
def test_both_clients_have_the_call_with_its_words(name: str) -> None:
    clients: list[Any] = [Escher, AsyncEscher]
    blocking, awaited = (getattr(each, name) for each in clients)
    assert blocking is awaited
    assert inspect.getdoc(blocking)
    assert "self" in inspect.signature(blocking).parameters


def test_where_the_service_is_can_be_left_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESCHER_URL", "http://elsewhere:1/")
    monkeypatch.setenv("ESCHER_NAMESPACE", "team-b")
    monkeypatch.setenv("ESCHER_NODE", "node-9")
    heard: list[httpx.Request] = []

    def hear(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(204)

    with Escher(transport=httpx.MockTransport(hear)) as escher:
        escher.delete_resource("a/b")
    assert str(heard[0].url) == "http://elsewhere:1/v1/namespaces/team-b/resources/a%2Fb"
    assert heard[0].headers["Escher-Node"] == "node-9"


def _pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
