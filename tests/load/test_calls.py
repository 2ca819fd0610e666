"""What was recorded can be sent again: nothing of it is lost but the values that are new each time."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from loadtests.recorded import calls as recorded
from loadtests.recorded.calls import KINDS, VERBS, Call, load, save, select
from loadtests.recorded.template import Unfaithful, again, template
from tests.adapters.http.test_golden import NAMES, REQUESTS, verb_of

UID = "01234567-89ab-4def-8123-456789abcdef"


def golden(file: Path) -> Call:
    return template(verb_of(file), file.read_bytes(), profile="escher", whole=file.parent.name == "nodes", cluster=3)


def filter_of(names: list[str], pod: str = "ordinary-0") -> bytes:
    return json.dumps({"Pod": {"metadata": {"name": pod, "uid": UID}}, "Nodes": None, "NodeNames": names}).encode()


def names_call(names: list[str]) -> Call:
    return template("filter", filter_of(names), profile="escher", whole=False, cluster=100)


@pytest.mark.parametrize("file", REQUESTS, ids=NAMES)
def test_a_recorded_body_is_filled_and_read_again_without_loss(file: Path) -> None:
    call = golden(file)
    assert again(call, seed=7) == call
    body = call.prepare(random.Random(7)).body("plain", UID, "train")
    assert abs(len(body) - len(file.read_bytes())) < 60
    assert json.loads(body).keys() == json.loads(file.read_bytes()).keys()


@pytest.mark.parametrize("file", REQUESTS, ids=NAMES)
def test_what_is_kept_has_no_uid_time_or_address(file: Path) -> None:
    call = golden(file)
    for text in (call.text, *(shape for _, shape in (call.sent.these if call.sent else ()))):
        assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}|\d{4}-\d\d-\d\dT|\d+\.\d+\.\d+\.\d+", text)


def test_the_pod_is_another_one_each_time() -> None:
    [first] = [each for each in REQUESTS if each.name.startswith("0007") and each.parent.name == "names"]
    ready = golden(first).prepare(random.Random(1))
    pod = json.loads(ready.body("load-1", UID, "mine"))["Pod"]["metadata"]
    assert (pod["name"], pod["uid"], pod["labels"]["escher.dev/gang"]) == ("load-1", UID, "mine")


def test_many_nodes_are_kept_as_their_number_and_drawn_from_the_whole_cluster() -> None:
    call = names_call([f"node-{number}" for number in range(40)])
    assert call.sent is not None
    assert (call.sent.alike, call.sent.these) == (40, ())
    drawn = [json.loads(call.prepare(random.Random(seed)).body("p", UID))["NodeNames"] for seed in range(2)]
    assert [len(set(each)) for each in drawn] == [40, 40]
    assert set(drawn[0]) <= {f"node-{number}" for number in range(100)}
    assert drawn[0] != drawn[1]


def test_a_few_nodes_are_kept_as_they_were() -> None:
    call = names_call(["node-17", "node-3"])
    drawn = json.loads(call.prepare(random.Random(1)).body("p", UID))["NodeNames"]
    assert sorted(drawn) == ["node-17", "node-3"]


def test_nodes_unlike_the_others_stay_so() -> None:
    nodes = [{"metadata": {"name": f"node-{number}"}, "unlike": number == 5} for number in range(20)]
    body = json.dumps({"Pod": {"metadata": {"name": "a-0", "uid": UID}}, "Nodes": {"items": nodes}, "NodeNames": None})
    call = template("filter", body.encode(), profile="escher", whole=True, cluster=30)
    sent = json.loads(call.prepare(random.Random(1)).body("p", UID))["Nodes"]["items"]
    assert [each["metadata"]["name"] for each in sent if each["unlike"]] == ["node-5"]
    assert len({each["metadata"]["name"] for each in sent}) == 20


def test_nodes_that_have_little_in_common_cannot_be_kept() -> None:
    nodes = [{"metadata": {"name": f"node-{number}"}, "extra": "x" * number} for number in range(100)]
    body = json.dumps({"Pod": {"metadata": {"name": "a-0", "uid": UID}}, "Nodes": {"items": nodes}, "NodeNames": None})
    with pytest.raises(Unfaithful, match="unlike the others"):
        template("filter", body.encode(), profile="escher", whole=True, cluster=100)


def test_nodes_of_another_cluster_cannot_be_kept() -> None:
    with pytest.raises(Unfaithful, match="'worker-a' is not a name"):
        names_call(["node-1", "worker-a"])


def test_what_is_saved_is_loaded_and_the_same_calls_make_the_same_bytes(tmp_path: Path) -> None:
    calls = list(dict.fromkeys(map(golden, REQUESTS)))
    save(calls, tmp_path / "a")
    save(calls, tmp_path / "b")
    assert load(tmp_path / "a") == calls
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_locusts_environment_need_have_nothing_of_ours() -> None:
    program = f"import sys; from {recorded.__name__} import load; load(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in ran.stdout.split()}
    assert not modules & {"extender", "msgspec", "httpx", "yaml"}


class TestTheFile:
    """What the load tests send."""

    calls = load()

    def test_it_is_small(self) -> None:
        assert recorded.FILE.stat().st_size < 50_000

    def test_it_has_every_verb_and_kind_with_names_and_whole_nodes_of_each_size(self) -> None:
        there = {(each.cluster, each.whole, each.verb, each.kind) for each in self.calls}
        for cluster in (100, 500, 5000):
            for whole in (False, True):
                for kind in KINDS:
                    verbs = {verb for size, form, verb, of in there if (size, form, of) == (cluster, whole, kind)}
                    assert verbs >= {"filter", "bind"}, (cluster, whole, kind)
                assert (cluster, whole, "prioritize", "ordinary") in there
                assert (cluster, whole, "preempt", "urgent") in there
        assert {each.verb for each in self.calls} == set(VERBS)

    def test_without_sampling_all_nodes_are_sent_and_with_it_some(self) -> None:
        def sent(profile: str, cluster: int) -> set[int]:
            found = select(self.calls, verb="filter", kind="ordinary", profile=profile, cluster=cluster)
            return {each.sent.count for each in found if each.sent is not None}

        assert sent("escher-ledger", 5000) == {5000}
        assert sent("escher", 100) == {100}
        assert all(100 <= count < 5000 for count in sent("escher", 5000))

    def test_it_names_no_machine(self) -> None:
        text = gzip.decompress(recorded.FILE.read_bytes()).decode()
        assert not re.search(
            r"[0-9a-f]{8}-[0-9a-f]{4}-|\d{4}-\d\d-\d\dT|\d+\.\d+\.\d+\.\d+|localhost|/(home|root|tmp)/", text
        )

    def test_each_call_is_filled_and_read_again_without_loss(self) -> None:
        small = [each for each in self.calls if not (each.whole and each.sent and each.sent.count > 250)]
        assert len(small) > len(self.calls) / 2
        for number, call in enumerate(small):
            assert again(call, seed=number) == call


def test_uids_of_nodes_are_uids() -> None:
    [whole, *_] = [each for each in REQUESTS if each.parent.name == "nodes" and verb_of(each) == "filter"]
    body = json.loads(golden(whole).prepare(random.Random(1)).body("p", UID))
    for node in body["Nodes"]["items"]:
        assert str(uuid.UUID(node["metadata"]["uid"])) == node["metadata"]["uid"]
