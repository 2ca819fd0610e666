"""Who asks in the load tests, and what. Locust itself is played: it lives in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loadtests
from loadtests.load import plan
from loadtests.load.results.timings import CALLS, LATENCIES
from loadtests.load.shapes import spike
from tests.load.played import locustfile

ROOT = Path(loadtests.__file__ or "").resolve().parents[1]
REFERENCE = "http://127.0.0.1:9"


class Client:
    """Notes what is posted, and answers as it is told to."""

    def __init__(self, status: int = 200, answer: Any = None) -> None:
        self.posted: list[tuple[str, str, dict[str, Any]]] = []
        self.failures: list[str] = []
        self.renamed: list[str] = []
        self._status, self._answer = status, answer

    @contextmanager
    def post(self, path: str, *, data: bytes, name: str, **_: Any) -> Iterator[Any]:
        self.posted.append((path, name, json.loads(data)))
        meta: dict[str, str] = {}
        yield SimpleNamespace(
            status_code=self._status, json=lambda: self._answer, failure=self.failures.append, request_meta=meta
        )
        self.renamed += meta.values()


def asks(module: Any, who: str, client: Client) -> None:
    """That user has done everything that it does once."""
    user = getattr(module, who)()
    user.client = client
    for each in getattr(user, "tasks", [module.Binder.bind]):
        each(user)


def test_what_runs_in_locusts_environment_needs_nothing_but_the_standard_library() -> None:
    mine = ", ".join(f"loadtests.load.{name}" for name in ("shapes", "results.timings", "pace", "placing", "managing"))
    program = f"import sys, {mine}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not {"extender", "msgspec", "httpx", "yaml"} & set(ran.stdout.split())


@pytest.mark.parametrize("who", [each for each in plan.VERBS if each != "WholeNodes"])
def test_each_user_finds_what_it_asks_among_the_recorded_calls(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch), Client(answer=[])
    asks(module, who, client)
    assert {path for path, _, _ in client.posted} <= {
        f"/scheduler/{verb}" for verb in ("filter", "prioritize", "bind", "preempt")
    }
    assert len(client.posted) == (1 if who == "Binder" else 3)
    assert client.failures == []


def test_the_file_says_who_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = locustfile(monkeypatch)
    text = (Path(loadtests.__file__ or "").parent / "locustfile.py").read_text()
    assert [name for name in plan.EVERYBODY if f"\n    {name} " not in text] == []
    users = (module.Asking, module.users.Clustered)
    there = {name for name, each in vars(module).items() if isinstance(each, type) and issubclass(each, users)}
    assert there - {"Asking"} == set(plan.EVERYBODY)


def test_pods_are_new_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch), Client(answer={"Error": ""})
    asks(module, "Scheduler", client)
    pods = [body["Pod"]["metadata"] for _, _, body in client.posted]
    assert len({pod["uid"] for pod in pods}) == len({pod["name"] for pod in pods}) == 3
    assert [len(body["NodeNames"]) for _, _, body in client.posted] == [100, 500, 5000]
    assert [name for _, name, _ in client.posted][-1] == "filter, ordinary, 5000 names"


def test_names_are_others_in_another_order_from_call_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch), Client(answer={"Error": ""})
    for _ in range(4):
        asks(module, "Sampling", client)
    assert len({tuple(body["NodeNames"]) for _, _, body in client.posted}) > 5


@pytest.mark.parametrize(("status", "answer", "told"), [(503, None, "503"), (200, {"Error": "no"}, "no")])
def test_an_error_is_a_failure(status: int, answer: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch), Client(status, answer)
    asks(module, "Scheduler", client)
    assert client.failures == [told] * 3


def test_a_bind_for_a_pod_that_is_not_there_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch), Client(answer={"Error": "pod not found"})
    asks(module, "Binder", client)
    assert (client.renamed, client.failures) == (["bind, answered with an error"], [])


def test_the_reference_is_asked_the_same_and_the_ratio_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, client = locustfile(monkeypatch, REFERENCE=f"{REFERENCE}/"), Client(answer={"Error": ""})
    asks(module, "Binder", client)
    (path, _, body), (other, _, same) = sorted(client.posted, key=lambda each: each[0])
    assert (path, other) == ("/scheduler/bind", f"{REFERENCE}/scheduler/bind")
    assert body == same
    for name, took in (("bind", 1.0), ("bind", 4.0), ("bind, reference", 2.0), ("filter", 1.0)):
        module.note(request_type="POST", name=name, response_time=took, exception=None)
    module.note(request_type="POST", name="bind", response_time=0.5, exception=ValueError())
    module.tell_ratios()
    said = " ".join(capsys.readouterr().out.split())
    # The one that failed is the slowest of three.
    ours, its = "bind 4.00 ms (3 calls, 1 failed)", "reference 2.00 ms (1 calls, 0 failed)"
    assert said == f"{ours}, {its}, ratio 2.00"


def test_where_most_calls_failed_the_ratio_is_infinite_and_where_the_references_did_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = locustfile(monkeypatch, REFERENCE="http://reference")
    for name, failed in (("bind", True), ("bind, reference", False), ("filter", False), ("filter, reference", True)):
        error = ValueError() if failed else None
        module.note(request_type="POST", name=name, response_time=1.0, exception=error)
    module.tell_ratios()
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["∞", "–"]


def test_the_shape_is_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hasattr(locustfile(monkeypatch), "Shape")
    shape = locustfile(monkeypatch, LOAD_SHAPE="spike").Shape()
    options = SimpleNamespace(num_users=40, run_time=100)
    shape.runner = SimpleNamespace(environment=SimpleNamespace(parsed_options=options))
    for at in (0, 50, 99):
        shape.get_run_time = lambda at=at: at
        assert shape.tick()[0] == spike(at, 40, 100)
    shape.get_run_time = lambda: 100
    assert shape.tick() is None


def test_every_call_of_a_verb_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    module, client = locustfile(monkeypatch, LOAD_RATE="200", REFERENCE=REFERENCE), Client(answer={"Error": ""})
    turns: list[int] = []
    monkeypatch.setattr(module.users.PACE, "turn", lambda: turns.append(len(client.posted)))
    asks(module, "Scheduler", client)
    assert turns == [0, 2, 4], "one for a call, though two are asked the same"


def test_those_who_need_a_cluster_are_refused_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = locustfile(monkeypatch)
    with pytest.raises(SystemExit, match=r"GangPods, Policies: there is no cluster in LOAD_CLUSTER"):
        module.refuse_those_without_a_cluster(
            SimpleNamespace(user_classes=[module.Scheduler, module.GangPods, module.Policies])
        )
    module.refuse_those_without_a_cluster(SimpleNamespace(user_classes=[module.Scheduler]))


def test_times_are_written_from_the_beginning_of_the_load_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = locustfile(monkeypatch, LOAD_FOLDER=str(tmp_path))
    module.note(request_type="POST", name="too early", response_time=1.0, exception=None)
    options = SimpleNamespace(run_time=60)
    module.begin_to_write(SimpleNamespace(parsed_options=options, runner=SimpleNamespace(user_count=3)))
    module.note(request_type="POST", name="filter", response_time=2.0, exception=None)
    module.note(request_type="POST", name="filter", response_time=1.0, exception=ValueError())
    module.end_writing()
    module.end_writing()
    [head, line] = (tmp_path / LATENCIES).read_text().splitlines()
    assert line.startswith("POST,filter,2,1,")
    assert len((tmp_path / CALLS).read_text().splitlines()) == len([head, line])
