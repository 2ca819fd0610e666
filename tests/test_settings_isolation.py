"""What the settings file may say of namespaces: merged with the default, refused by field, taken up while it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted, Isolation, Over
from extender.settings.settings import BadSettings, Settings, load_settings
from extender.settings.settings_file import SettingsFile

R, U, P, K = Counted.RESOURCES, Counted.UNITS, Counted.POLICIES, Counted.WAITING_KINDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def loaded(path: Path, text: str) -> Settings:
    path.write_text(text)
    return load_settings(path)


def test_where_nothing_is_said_no_namespace_can_take_what_all_share(path: Path) -> None:
    settings = loaded(path, "port: 0\n")
    default, named = settings.isolation.allowances()
    assert (default, named) == (Allowance({R: 500, P: 200, K: 1_000}), {})
    assert default.most[R] < settings.max_ephemeral_resources_per_node


def test_null_is_without_a_limit_for_all(path: Path) -> None:
    said = "isolation: {default: {resources: null, policies: null, waiting_kinds: null}}\n"
    assert loaded(path, said).isolation.allowances() == (UNLIMITED, {})


def test_a_namespace_has_the_defaults_where_it_says_nothing_and_null_is_without_a_limit(path: Path) -> None:
    text = """
isolation:
  default: {resources: 5, units: 50, names: [a*]}
  namespaces:
    team-a: {resources: 7, nodes: {pool: a, zone: [x, y]}}
    team-b: {resources: null, names: null}
"""
    default, named = loaded(path, text).isolation.allowances()
    assert default == Allowance({R: 5, U: 50, P: 200, K: 1_000}, None, ("a*",))
    assert named["team-a"] == Allowance({R: 7, U: 50, P: 200, K: 1_000}, {"pool": ("a",), "zone": ("x", "y")}, ("a*",))
    assert named["team-b"] == Allowance({U: 50, P: 200, K: 1_000})
    isolation = Isolation(default, named)
    assert isolation.limit("team-b", R) is None
    assert isolation.over("nobody", R, 1, 5) == Over("nobody", R, 1, 5, 5)
    assert isolation.over("nobody", P, 101, 99) is None
    assert isolation.over("nobody", R, 0, 9) is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("namespaces: {team: {units: -1}}", "isolation.namespaces.team.units = -1"),
        ("namespaces: {team: {units: 1.5}}", "isolation.namespaces.team.units = 1.5"),
        ("namespaces: {team: {pods: 3}}", "isolation.namespaces.team.pods"),
        ("namespaces: {Team: {}}", "namespace 'Team' is not a DNS label"),
        ("default: {names: ['A*']}", "isolation.default.names.0 = 'A*'"),
        ("default: {nodes: {'a b': x}}", "is not a label key"),
        ("default: {nodes: {pool: []}}", "isolation.default.nodes.pool"),
        ("default: {nodes: {pool: ['x y']}}", "is not a label value"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(path: Path, said: str, field: str) -> None:
    with pytest.raises(BadSettings) as refused:
        loaded(path, f"isolation: {{{said}}}\n")
    assert field in str(refused.value)


def test_a_change_is_taken_up_while_the_service_runs(path: Path) -> None:
    at_start = loaded(path, "port: 0\n")
    changes: list[Settings] = []
    file = SettingsFile(path, partial(load_settings, path), at_start, changed=changes.append)
    file.look()
    path.write_text("isolation: {default: {policies: 3}}\n")
    file.look()
    file.look()
    assert [now.isolation.allowances()[0].most for now in changes] == [{R: 500, P: 3, K: 1_000}]


def test_a_domain_has_nodes_with_all_its_labels_and_names_of_any_pattern() -> None:
    domain = Allowance(nodes={"pool": ("a", "b"), "zone": ("x",)}, names=("data*", "x?"))
    assert domain.has_node({"pool": "b", "zone": "x", "more": "y"})
    assert not domain.has_node({"pool": "b"})
    assert [domain.has_name(name) for name in ("data", "data1", "x1", "x", "mydata")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert domain.told_nodes() == "pool=a|b, zone=x"
    assert Allowance(names=()).has_name("any") is False
