"""kube-scheduler's configuration as people have it: in a file, in a ConfigMap, and with what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extender.doctor import from_files
from extender.doctor.scheduler_file import Entry, SchedulerFile, on_this_machine, seconds_in
from extender.shipped import places

SHIPPED = places.shipped("scheduler-config")


@pytest.mark.parametrize(
    ("file", "profiles"),
    [("escher.yaml", ["escher", "escher-ledger"]), ("escher-resources.yaml", ["escher-resources"])],
)
def test_what_is_shipped_is_read(file: str, profiles: list[str]) -> None:
    [found] = from_files.scheduler_files(SHIPPED / file)
    assert list(found.profiles) == profiles
    assert found.name == str(SHIPPED / file)


def test_a_config_map_is_read_by_its_keys(tmp_path: Path) -> None:
    data = {each: (SHIPPED / each).read_text() for each in ("escher.yaml", "escher-resources.yaml")} | {"other": "a: 1"}
    manifests = [{"kind": "ConfigMap", "data": data}, {"kind": "ConfigMap"}, {"kind": "Secret"}, None, "text"]
    file = tmp_path / "chart.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    found = from_files.scheduler_files(file)
    assert {each.name for each in found} == {f"{file} (escher.yaml)", f"{file} (escher-resources.yaml)"}


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "it has no KubeSchedulerConfiguration and no ConfigMap with one"),
        ("kind: Deployment", "it has no KubeSchedulerConfiguration"),
        ("a: [", "it is not YAML"),
        (f"{HEAD}extenders: none\n", "extenders: expected `array | null`, got `str`"),
        (f"{HEAD}extenders: [{{weight: heavy}}]\n", "extenders[0].weight: expected `float | null`, got `str`"),
        (f"{HEAD}profiles: [null]\n", "profiles[0]: expected `object`, got `null`"),
        (
            f"{HEAD}profiles: [{{percentageOfNodesToScore: all}}]\n",
            "profiles[0].percentageOfNodesToScore: expected `int",
        ),
        (f"{HEAD}extenders: [{{ignorable: 'no'}}]\n", "extenders[0].ignorable: expected `bool`"),
        (f"{HEAD}leaderElection: false\n", "leaderElection: expected `object | null`"),
    ],
)
def test_what_kube_scheduler_could_not_read_is_refused_with_field_and_value(
    content: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(content)
    with pytest.raises(from_files.BadFile) as refused:
        from_files.scheduler_files(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert told in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(from_files.BadFile, match="No such file"):
        from_files.scheduler_files(tmp_path / "absent")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(from_files.BadFile, match=r"bytes: .*decode"):
        from_files.scheduler_files(tmp_path / "bytes")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("60s", 60.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("500ms", 0.5),
        ("", None),
        ("60", None),
        (60, None),
        ("sixty", None),
        ("1m 30s", None),
        (None, None),
    ],
)
def test_durations_are_gos(said: object, seconds: float | None) -> None:
    assert seconds_in(said) == seconds


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ({"urlPrefix": "http://127.0.0.1:8080/scheduler"}, True),
        ({"urlPrefix": "https://escher.escher-system.svc:8443"}, True),
        ({"urlPrefix": "http://10.0.0.1:9000/verbs"}, True),
        ({"urlPrefix": "http://gpu:1/", "managedResources": [{"name": "escher.dev/managed"}]}, True),
        ({"urlPrefix": "http://gpu:1/", "managedResources": [{"name": "example.com/gpu"}]}, False),
        ({"urlPrefix": "http://[::1/"}, False),
        ({}, False),
    ],
)
def test_an_entry_is_ours_by_its_address_or_by_what_it_manages(said: dict[str, object], calls: bool) -> None:
    assert Entry("a file", said).calls("http://10.0.0.1:9000") is calls


def test_what_is_left_out_is_as_kube_scheduler_takes_it() -> None:
    bare = SchedulerFile("a file", {})
    assert (list(bare.profiles), bare.entries, bare.lease) == (["default-scheduler"], [], "kube-system/kube-scheduler")
    assert SchedulerFile("a file", {"leaderElection": {"leaderElect": False}}).lease is None


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("escher", False)]
)
def test_loopback_is_known_by_name_and_number(host: str, local: bool) -> None:
    assert on_this_machine(host) is local
