"""Host ports and topology spread: who is kept from which node, what is said then, and what brings a pod back."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core.policies.policy_types import HOSTNAME
from tests.conformance.site import EXTENDER, NOBODY, PURE, Json, Site
from tests.conformance.test_scheduling_fit import reasons

ZONE = "conformance.test/zone"
NO_PORT = "node(s) didn't have free ports for the requested pod ports"
SKEWED = "node(s) didn't match pod topology spread constraints"
NO_KEY = f"{SKEWED} (missing required label)"
APP = {"app": "a"}


def with_ports(site: Site, name: str, *ports: Json, scheduler: str = PURE) -> Json:
    body = site.pod(name, scheduler, cpu="100m")
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, **port} for port in ports]
    return body


def spread(key: str = ZONE, **more: Any) -> Json:
    usual = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": APP}}
    return {"topologyKey": key, **usual, **more}


def spreading(site: Site, name: str, *wanted: Json, scheduler: str = PURE, **labels: str) -> Json:
    body = site.pod(name, scheduler, cpu="100m")
    body["metadata"]["labels"] = labels or APP
    body["spec"]["topologySpreadConstraints"] = list(wanted)
    return body


def there(site: Site, node: str, *pods: str, **labels: str) -> None:
    """Pods with these labels (the app's, if none are given) stand on the node, whoever put them there."""
    for name in pods:
        body = site.pod(name, NOBODY, cpu="100m")
        body["metadata"]["labels"] = labels or APP
        body["spec"]["nodeName"] = node
        site.create(body)
    for name in pods:
        site.until_phase(name, "Running")


def zones(site: Site, *names: str) -> list[str]:
    return [site.node(labels={ZONE: name}) for name in names]


def node_of(site: Site, body: Json) -> str:
    return site.until_bound(site.create(body))[body["metadata"]["name"]]


class TestHostPorts:
    @pytest.mark.parametrize("scheduler", [PURE, EXTENDER])
    def test_two_pods_with_one_port_go_to_two_nodes(self, site: Site, scheduler: str) -> None:
        site.nodes(2)
        wanted = [with_ports(site, name, {"hostPort": 8080}, scheduler=scheduler) for name in ("a", "b")]
        placed = site.until_bound(site.create(*wanted))
        assert len(set(placed.values())) == 2

    @pytest.mark.parametrize(
        ("first", "second", "clash"),
        [
            ({"hostPort": 80}, {"hostPort": 80}, True),
            ({"hostPort": 80}, {"hostPort": 81}, False),
            ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
            ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.2"}, False),
            ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.1"}, True),
            ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80}, True),
            ({"hostPort": 80}, {"hostPort": 80, "hostIP": "127.0.0.1"}, True),
            ({"hostPort": 80, "hostIP": "0.0.0.0"}, {"hostPort": 80, "hostIP": "127.0.0.1"}, True),
        ],
    )
    def test_number_protocol_and_address_decide(self, site: Site, first: Json, second: Json, clash: bool) -> None:
        site.node()
        site.until_bound(site.create(with_ports(site, "first", first)))
        [name] = site.create(with_ports(site, "second", second))
        if clash:
            assert reasons(site.until_rejected(name))[NO_PORT] == 1
        else:
            site.until_bound([name])

    def test_a_pod_on_the_hosts_network_takes_its_containers_ports(self, site: Site) -> None:
        site.node()
        body = with_ports(site, "first", {})
        body["spec"]["hostNetwork"] = True
        site.until_bound(site.create(body))
        [name] = site.create(with_ports(site, "second", {"hostPort": 80}))
        assert reasons(site.until_rejected(name))[NO_PORT] == 1

    @pytest.mark.parametrize(("policy", "counts"), [("Always", True), (None, False)])
    def test_of_init_containers_those_that_stay_count(self, site: Site, policy: str | None, counts: bool) -> None:
        site.node()
        site.until_bound(site.create(with_ports(site, "first", {"hostPort": 80})))
        body = site.pod("second", PURE)
        init = {"name": "init", "image": "none", "ports": [{"containerPort": 1, "hostPort": 80}]}
        body["spec"]["initContainers"] = [init | ({"restartPolicy": policy} if policy else {})]
        [name] = site.create(body)
        if counts:
            assert reasons(site.until_rejected(name))[NO_PORT] == 1
        else:
            site.until_bound([name])

    def test_woken_when_the_port_is_free(self, site: Site) -> None:
        site.node()
        site.until_bound(site.create(with_ports(site, "first", {"hostPort": 80})))
        [name] = site.create(with_ports(site, "second", {"hostPort": 80}))
        site.until_rejected(name)
        site.delete("first")
        site.until_bound([name])

    def test_woken_by_a_new_node(self, site: Site) -> None:
        site.node()
        site.until_bound(site.create(with_ports(site, "first", {"hostPort": 80})))
        [name] = site.create(with_ports(site, "second", {"hostPort": 80}))
        site.until_rejected(name)
        node = site.node()
        assert site.until_bound([name]) == {name: node}

    def test_a_more_important_pod_takes_the_port(self, site: Site) -> None:
        site.node()
        site.until_bound(site.create(with_ports(site, "first", {"hostPort": 80})))
        body = with_ports(site, "second", {"hostPort": 80})
        body["spec"]["priorityClassName"] = site.priority(10)
        site.until_bound(site.create(body))
        assert "first" not in site.pods()

    @pytest.mark.parametrize(
        ("ports", "said"),
        [
            ([{"containerPort": 0}], "ports[0].containerPort: Required value"),
            ([{"hostPort": 65536}], "ports[0].hostPort: Invalid value: 65536: must be between 1 and 65535, inclusive"),
            ([{"hostPort": -1}], "ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"),
            ([{"protocol": "ICMP"}], 'ports[0].protocol: Unsupported value: "ICMP"'),
            ([{"hostPort": 80}, {"hostPort": 80}], 'ports[1].hostPort: Duplicate value: "TCP//80"'),
        ],
    )
    def test_a_port_that_cannot_be_is_refused(self, site: Site, ports: list[Json], said: str) -> None:
        refused = site.refusal(lambda: site.create(with_ports(site, "a", *ports)), 422, "Invalid")
        assert f"spec.containers[0].{said}" in refused


class TestSpread:
    @pytest.mark.parametrize("scheduler", [PURE, EXTENDER])
    def test_pods_are_spread_evenly(self, site: Site, scheduler: str) -> None:
        nodes = zones(site, "x", "x", "y")
        placed = [node_of(site, spreading(site, f"p{at}", spread(), scheduler=scheduler)) for at in range(4)]
        assert sum(node == nodes[2] for node in placed) == 2

    def test_a_zone_that_is_too_full_is_told(self, site: Site) -> None:
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two")
        site.cordon(y)
        [name] = site.create(spreading(site, "a", spread()))
        counted = reasons(site.until_rejected(name))
        assert (counted[SKEWED], counted["node(s) were unschedulable"]) == (1, 1)

    @pytest.mark.parametrize(("skew", "fits"), [(1, False), (2, False), (3, True)])
    def test_as_much_skew_as_is_allowed(self, site: Site, skew: int, fits: bool) -> None:
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two")
        body = spreading(site, "a", spread(maxSkew=skew))
        # To the full zone or nowhere, while the other zone goes on counting.
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        body["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore"
        del y
        [name] = site.create(body)
        if fits:
            assert site.until_bound([name]) == {name: x}
        else:
            assert reasons(site.until_rejected(name))[SKEWED] == 1

    def test_nodes_that_the_pod_does_not_select_do_not_count(self, site: Site) -> None:
        x, _ = zones(site, "x", "y")
        there(site, x, "one", "two")
        body = spreading(site, "a", spread())
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        assert node_of(site, body) == x

    @pytest.mark.parametrize(("policy", "fits"), [("Honor", True), ("Ignore", False), (None, False)])
    def test_tainted_nodes_count_or_not(self, site: Site, policy: str | None, fits: bool) -> None:
        [x] = zones(site, "x")
        site.node(labels={ZONE: "y"}, taints=[{"key": "away", "effect": "NoSchedule"}])
        there(site, x, "one")
        [name] = site.create(spreading(site, "a", spread(**({"nodeTaintsPolicy": policy} if policy else {}))))
        if fits:
            assert site.until_bound([name]) == {name: x}
        else:
            assert reasons(site.until_rejected(name))[SKEWED] == 1

    @pytest.mark.parametrize(("domains", "fits"), [(None, True), (2, True), (3, False)])
    def test_with_too_few_domains_the_least_is_none(self, site: Site, domains: int | None, fits: bool) -> None:
        for at, node in enumerate(zones(site, "x", "y")):
            there(site, node, f"there-{at}")
        more: Json = {"minDomains": domains} if domains else {}
        [name] = site.create(spreading(site, "a", spread(**more)))
        if fits:
            site.until_bound([name])
        else:
            assert reasons(site.until_rejected(name))[SKEWED] == 2

    def test_a_node_without_the_key_has_no_such_pod_and_does_not_count(self, site: Site) -> None:
        [x] = zones(site, "x")
        site.node()
        there(site, x, "one", "two")
        assert node_of(site, spreading(site, "a", spread())) == x
        site.cordon(x)
        [name] = site.create(spreading(site, "b", spread()))
        assert reasons(site.until_rejected(name))[NO_KEY] == 1

    def test_all_constraints_must_hold(self, site: Site) -> None:
        x, _ = zones(site, "x", "x")
        there(site, x, "one")
        other = node_of(site, spreading(site, "a", spread(HOSTNAME), spread()))
        assert other != x

    @pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"app": "b"}}])
    def test_whom_the_selector_does_not_mean_is_not_counted(self, site: Site, selector: Json | None) -> None:
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two", "three")
        body = spreading(site, "a", spread(labelSelector=selector, nodeAffinityPolicy="Ignore"))
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        del y
        assert node_of(site, body) == x

    def test_pods_of_other_namespaces_and_terminating_ones_are_not_counted(self, site: Site) -> None:
        x, _ = zones(site, "x", "y")
        there(site, x, "one")
        site.api.patch(site.pods_at("one"), {"metadata": {"finalizers": ["conformance.test/held"]}})
        site.api.delete(site.pods_at("one"))
        body = spreading(site, "a", spread(nodeAffinityPolicy="Ignore"))
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        assert node_of(site, body) == x

    def test_match_label_keys_tell_revisions_apart_and_become_part_of_the_selector(self, site: Site) -> None:
        x, _ = zones(site, "x", "y")
        there(site, x, "one", "two", app="a", revision="1")
        wanted = spread(matchLabelKeys=["revision", "absent"], nodeAffinityPolicy="Ignore")
        body = spreading(site, "new", wanted, app="a", revision="2")
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        assert node_of(site, body) == x
        [kept] = site.read("new")["spec"]["topologySpreadConstraints"]
        assert kept["labelSelector"] == {
            "matchLabels": APP,
            "matchExpressions": [{"key": "revision", "operator": "In", "values": ["2"]}],
        }
        old = spreading(site, "old", wanted, app="a", revision="1")
        old["spec"]["nodeSelector"] = {HOSTNAME: x}
        [name] = site.create(old)
        assert reasons(site.until_rejected(name))[SKEWED] == 1

    def test_where_it_should_be_even_the_emptier_zone_is_taken(self, site: Site) -> None:
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two", "three")
        # So that room alone would choose the other.
        there(site, y, *(f"filler-{at}" for at in range(8)), app="other")
        assert node_of(site, spreading(site, "a", spread(whenUnsatisfiable="ScheduleAnyway"))) == y

    def test_where_it_should_be_even_it_need_not(self, site: Site) -> None:
        [x] = zones(site, "x")
        there(site, x, "one", "two", "three")
        assert node_of(site, spreading(site, "a", spread(HOSTNAME, whenUnsatisfiable="ScheduleAnyway"))) == x


class TestSpreadWakes:
    """A pod that a spread constraint has kept away comes back ..."""

    def skewed(self, site: Site, **more: Any) -> tuple[str, str, str]:
        """The crowded node, the empty one that is cordoned, and the pod that waits."""
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two")
        site.cordon(y)
        [name] = site.create(spreading(site, "waiting", spread(maxSkew=2, **more)))
        site.until_rejected(name)
        return x, y, name

    def test_when_one_that_counts_is_deleted(self, site: Site) -> None:
        x, _, name = self.skewed(site)
        site.delete("one")
        assert site.until_bound([name]) == {name: x}

    def test_when_one_that_counts_comes_to_the_emptier_zone(self, site: Site) -> None:
        x, y, name = self.skewed(site)
        there(site, y, "three")
        assert site.until_bound([name]) == {name: x}

    def test_when_one_is_not_meant_any_more(self, site: Site) -> None:
        x, _, name = self.skewed(site)
        site.api.patch(site.pods_at("one"), {"metadata": {"labels": {"app": "b"}}})
        assert site.until_bound([name]) == {name: x}

    def test_when_a_node_comes_with_the_key(self, site: Site) -> None:
        _, _, name = self.skewed(site)
        new = site.node(labels={ZONE: "z"})
        assert site.until_bound([name]) == {name: new}

    def test_when_the_emptier_zone_is_gone(self, site: Site) -> None:
        x, y, name = self.skewed(site)
        site.api.delete(site.node_at(y))
        assert site.until_bound([name]) == {name: x}

    def test_when_a_node_gets_the_key(self, site: Site) -> None:
        _, _, name = self.skewed(site)
        new = site.node()
        site.patch_node(new, metadata={"labels": {ZONE: "z"}})
        assert site.until_bound([name]) == {name: new}

    def test_when_the_emptier_zone_is_tainted_and_that_is_heeded(self, site: Site) -> None:
        x, y = zones(site, "x", "y")
        there(site, x, "one", "two")
        wanted = spread(maxSkew=2, nodeTaintsPolicy="Honor", nodeAffinityPolicy="Ignore")
        body = spreading(site, "waiting", wanted)
        body["spec"]["nodeSelector"] = {HOSTNAME: x}
        [name] = site.create(body)
        site.until_rejected(name)
        site.patch_node(y, spec={"taints": [{"key": "away", "effect": "NoSchedule"}]})
        assert site.until_bound([name]) == {name: x}


class TestRefused:
    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"maxSkew": 0}, "maxSkew: Invalid value: 0: must be greater than zero"),
            ({"maxSkew": -1}, "maxSkew: Invalid value: -1: must be greater than zero"),
            ({"topologyKey": ""}, "topologyKey: Required value: can not be empty"),
            (
                {"whenUnsatisfiable": "Perhaps"},
                'whenUnsatisfiable: Unsupported value: "Perhaps": supported values: "DoNotSchedule", "ScheduleAnyway"',
            ),
            ({"minDomains": 0}, "minDomains: Invalid value: 0: must be greater than zero"),
            (
                {"minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"},
                "minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "
                "ScheduleAnyway",
            ),
            (
                {"nodeAffinityPolicy": "Perhaps"},
                'nodeAffinityPolicy: Unsupported value: "Perhaps": supported values: "Honor", "Ignore"',
            ),
            (
                {"nodeTaintsPolicy": "Perhaps"},
                'nodeTaintsPolicy: Unsupported value: "Perhaps": supported values: "Honor", "Ignore"',
            ),
            ({"matchLabelKeys": ["-"]}, "matchLabelKeys[0]: Invalid value: "),
            (
                {"matchLabelKeys": ["app"]},
                # The constraint is named twice, not the list of keys: kube-apiserver does so.
                '[0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector',
            ),
            (
                {"matchLabelKeys": ["a"], "labelSelector": None},
                "matchLabelKeys: Forbidden: must not be specified when ",
            ),
            (
                {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}},
                'labelSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator',
            ),
        ],
    )
    def test_a_constraint_that_makes_no_sense_is_refused(self, site: Site, more: Json, said: str) -> None:
        refused = site.refusal(lambda: site.create(spreading(site, "a", spread(**more))), 422, "Invalid")
        assert f"spec.topologySpreadConstraints[0]{said}" in refused.replace("[0].", "[0]", 1)

    def test_the_same_constraint_twice_is_refused(self, site: Site) -> None:
        twice = [spread(), spread(maxSkew=2)]
        refused = site.refusal(lambda: site.create(spreading(site, "a", *twice)), 422, "Invalid")
        where = "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}"
        assert f'{where}: Duplicate value: "{{{ZONE}, DoNotSchedule}}"' in refused
