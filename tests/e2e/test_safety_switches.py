"""Safety switches at run time: the settings file, labels of namespaces; what is held back, and what is evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extender.app.cache.cache import KEYS_PER_NODE
from loadtests.shared.pods import EXTENDER
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, shared_field
from tests.e2e.workload import DOMAIN, Arena, Field, stays

pytestmark = [pytest.mark.timeout(300)]
ETCD_LIMIT = 1.5 * 2**20

Hold = Callable[[str], None]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "escher.yaml"
    file.write_text("observe_only: false\n")
    return file


@pytest.fixture(scope="module")
def field(state_folder: Path, where: str, settings: Path) -> Iterator[Field]:
    yield from shared_field(where, nodes=1, service_arguments=("--config", str(settings)))


@pytest.fixture
def arena(field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A namespace of the test's own. Where nothing is refused, gangs are bound in part as without Escher."""
    made = field.arena(f"switches-{len(request.node.name)}")
    try:
        yield made
        assert made.report().gaps == 0
        field.assert_sound()
    finally:
        made.clear()


@pytest.fixture
def urgent(arena: Arena) -> str:
    name = f"{arena.namespace}-urgent"
    arena.cluster_wide("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 1000})
    return name


@pytest.fixture
def hold(field: Field, settings: Path) -> Iterator[Hold]:
    """Writes the settings file; it is as before at the end."""

    def write(text: str) -> None:
        new = settings.with_suffix(".new")
        new.write_text(text)
        new.replace(settings)

    yield write
    write("observe_only: false\n")
    eventually(lambda: not everywhere(field)["observe_only"], what="the end of the safety switches")


def everywhere(field: Field) -> dict[str, bool]:
    found: dict[str, bool] = field.service.call("GET", "/v1/safety-switches")["everywhere"]
    return found


def label(arena: Arena, **labels: str | None) -> None:
    """The namespace has these labels of ours, and the service knows."""
    said = {f"{DOMAIN}/{name.replace('_', '-')}": value for name, value in labels.items()}
    arena.api.patch(f"/api/v1/namespaces/{arena.namespace}", {"metadata": {"labels": said}})
    wanted = any(value is not None for value in labels.values())
    eventually(
        lambda: (arena.namespace in arena.service.call("GET", "/v1/safety-switches")["namespaces"]) is wanted,
        what="the service knowing the labels",
    )


def waiting_gang(arena: Arena) -> list[str]:
    """A gang of three that has room for two."""
    arena.nodes(2)
    members = arena.create(*arena.gang("train", 3, EXTENDER, cpu=8))
    arena.until_rejected(members)
    return members


def test_whoever_waits_is_let_in_when_the_settings_file_says_observe_only(arena: Arena, hold: Hold) -> None:
    members = waiting_gang(arena)
    hold("observe_only: true\n")
    eventually(lambda: len(arena.bound(members)) == 2, what="what has room being bound")
    assert arena.service.metric("escher_brake", act="refuse") == 1
    hold("observe_only: perhaps\n")
    eventually(lambda: arena.service.metric("escher_settings_file_unusable_total") == 1, what="the complaint")
    assert everywhere(arena.field)["observe_only"]
    hold("observe_only: false\n")
    eventually(lambda: not everywhere(arena.field)["observe_only"], what="the end of the safety switches")
    before = set(arena.bound(members))
    assert stays(lambda: set(arena.bound(members)), during=6.0, what="the members that run") == before
    arena.nodes(1)
    arena.until_bound(members)


def test_while_we_only_observe_what_would_be_refused_is_counted(arena: Arena, hold: Hold) -> None:
    hold("observe_only: true\n")
    eventually(lambda: everywhere(arena.field)["observe_only"], what="the safety switches")
    before = arena.service.metric("escher_actions_suppressed_total", act="refuse")
    arena.nodes(2)
    members = arena.create(*arena.gang("train", 3, EXTENDER, cpu=8))
    eventually(lambda: len(arena.bound(members)) == 2, what="what has room being bound")
    assert arena.service.metric("escher_actions_suppressed_total", act="refuse") > before
    assert stays(lambda: len(arena.bound(members)), during=5.0, what="the members that run") == 2


def test_a_label_on_a_namespace_does_so_for_its_gangs_alone(arena: Arena) -> None:
    other = arena.field.arena("other")
    try:
        members, others = waiting_gang(arena), waiting_gang(other)
        label(arena, observe_only="true")
        eventually(lambda: len(arena.bound(members)) == 2, what="what has room being bound")
        assert stays(lambda: other.bound(others), what="the other gang") == {}
        label(arena, observe_only=None)
    finally:
        other.clear()


def test_a_label_protects_pods_from_preemption_until_it_goes(arena: Arena, urgent: str) -> None:
    arena.nodes(1)
    low = arena.create(arena.pod("low", EXTENDER, cpu=8))
    arena.until_bound(low)
    label(arena, preempt="off")
    high = arena.create(*arena.gang("high", 1, EXTENDER, cpu=8, priority_class=urgent))
    arena.until_rejected(high)
    assert stays(lambda: arena.bound().keys(), during=3.0, what="the pods that run") == set(low)
    before = arena.service.metric("escher_evictions_total", kind="preempted")
    label(arena, preempt=None)
    arena.until_bound(high, within=40)
    assert arena.service.metric("escher_evictions_total", kind="preempted") == before + 1
    [line] = [line for line in arena.field.cluster.log("service").splitlines() if f"{arena.namespace}/low" in line]
    assert "destroyed" in line
    assert "higher priority" in line


@REAL_ONLY
def test_a_node_with_its_most_keys_of_the_longest_names_is_below_half_of_what_etcd_stores(arena: Arena) -> None:
    [node] = arena.nodes(1)
    longest = [f"{DOMAIN}/{'n' * 30}.{number:032}" for number in range(KEYS_PER_NODE)]
    assert len(longest[0].partition("/")[2]) == 63
    said = dict.fromkeys(longest, "1000000")
    arena.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": said, "allocatable": said}})
    stored = stored_bytes(arena, f"/api/v1/nodes/{node}")
    arena.field.measured.append(f"a Node with {KEYS_PER_NODE} keys: {stored / 2**20:.2f} MiB")
    assert stored < ETCD_LIMIT / 2
    arena.api.patch(
        f"/api/v1/nodes/{node}/status",
        {"status": {"capacity": dict.fromkeys(longest), "allocatable": dict.fromkeys(longest)}},
    )


def stored_bytes(arena: Arena, path: str) -> int:
    """How large the object is in the form in which the API server stores it."""
    answer = arena.api._client.get(path, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert answer.status_code == 200
    return len(answer.content)
