"""Mistakes made on purpose in the sound set-up: which check finds each, what it tells, and the mend that it names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from extender.core.names import MANAGED
from extender.doctor.permissions import PAST_BUDGETS, Permission
from tests.doctor.set_up import GATED, KEY, NOW, ORDINARY, OURSELVES, Json, SetUp, pod

Act = Callable[[SetUp], object]


class Mistake(NamedTuple):
    check: str
    make: Act
    tells: str
    """In what is wrong: field and value."""
    mend: Act
    says: str
    """In how to mend it."""
    is_note: bool = False


def _second_binder(s: SetUp) -> None:
    s.scheduler["extenders"].append(
        {"urlPrefix": "http://127.0.0.1:9/other", "bindVerb": "bind", "nodeCacheCapable": True}
    )


def _filter_for_marked_alone(s: SetUp) -> None:
    del s.every["filterVerb"]
    s.marked["filterVerb"] = "filter"


def _filter_for_every_pod(s: SetUp) -> None:
    s.every["filterVerb"] = "filter-only"
    del s.marked["filterVerb"]


def _ignore_domain(s: SetUp, profile: str) -> None:
    ledger = s.profile("escher-ledger")
    s.profile(profile)["pluginConfig"] = ledger["pluginConfig"]


def _remember_fit(s: SetUp) -> None:
    s.profile("escher-ledger")["pluginConfig"] = [
        {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["escher.dev"]}}
    ]


def _in_clear_beyond_loopback(s: SetUp) -> None:
    for each in s.scheduler["extenders"]:
        each["urlPrefix"] = "http://escher.escher-system.svc:8080/scheduler"


def _on_loopback(s: SetUp) -> None:
    for each in s.scheduler["extenders"]:
        each["urlPrefix"] = "http://127.0.0.1:8080/scheduler"


def _https_in_name_alone(s: SetUp) -> None:
    s.every["enableHTTPS"] = True


def _not_https(s: SetUp) -> None:
    s.every["enableHTTPS"] = False


def _rename(s: SetUp, old: str, new: str) -> None:
    s.profile(old)["schedulerName"] = new


ELECTS = {"leader-election": "enabled"}
ELECTED = {"leader_election": True, "leader_service": "escher"}


def replica(name: str, **labels: str) -> Json:
    """A pod of the service, as deploy/ has it made."""
    said = {f"app.kubernetes.io/{key}": word for key, word in (("name", "escher"), ("component", "service"))}
    metadata = {"namespace": "escher-system", "name": name, "labels": said | labels, "annotations": {}}
    return pod(name, node="n3", scheduler="default-scheduler", marked=False, metadata=metadata)


def _elected_by_settings(s: SetUp) -> None:
    s.settings.update(ELECTED)
    s.pods.append(replica("escher-a"))


def _one_entry_for_every_pod(s: SetUp) -> None:
    s.marked.pop("managedResources")
    s.marked.update(filterVerb="filter", preemptVerb="preempt")
    s.scheduler["extenders"] = [s.marked]


def _without_marks(s: SetUp) -> None:
    s.minor = 35
    s.policies.clear()
    s.bound.clear()


def _filter_only_for_every_pod(s: SetUp) -> None:
    _one_entry_for_every_pod(s)
    s.every["filterVerb"] = "filter-only"


def _insecure(s: SetUp) -> None:
    s.over_https()
    s.marked["tlsConfig"]["insecure"] = True


def _https_by_address_alone(s: SetUp) -> None:
    s.over_https()
    del s.settings["tls_client_ca"], s.marked["tlsConfig"]
    s.marked["enableHTTPS"] = False


def _schema(s: SetUp) -> dict[str, object]:
    version = s.definitions[0]["spec"]["versions"][0]
    found: dict[str, object] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def _amounts(s: SetUp, units: str | None, *fields: str) -> None:
    for name in fields:
        s.nodes[0]["status"][name].pop(KEY, None)
        if units is not None:
            s.nodes[0]["status"][name][KEY] = units


_BOTH = ("capacity", "allocatable")

NOTED: Json = {
    "metadata": {"namespace": "team", "name": "transaction-1", "annotations": {"escher.dev/transaction": "{}"}},
    "spec": {"nodes": {}},
    "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Invalid"}]},
}
MISTAKES = (
    # -- kube-scheduler's configuration, as a whole --
    Mistake(
        "api-version-unknown",
        lambda s: s.scheduler.update(apiVersion="kubescheduler.config.k8s.io/v1beta3"),
        "apiVersion is 'kubescheduler.config.k8s.io/v1beta3'",
        lambda s: s.scheduler.update(apiVersion="kubescheduler.config.k8s.io/v1"),
        "kubescheduler.config.k8s.io/v1",
    ),
    Mistake(
        "extender-missing",
        lambda s: s.scheduler.pop("extenders"),
        "escher and escher-ledger",
        lambda s: s.scheduler.update(extenders=SetUp().scheduler["extenders"]),
        "scheduler-config/escher.yaml",
    ),
    Mistake(
        "ledger-sampled",
        lambda s: s.profile("escher-ledger").pop("percentageOfNodesToScore"),
        "percentageOfNodesToScore is 0",
        lambda s: s.profile("escher-ledger").update(percentageOfNodesToScore=100),
        "percentageOfNodesToScore: 100",
    ),
    Mistake(
        "ledger-sampled",
        lambda s: (
            s.scheduler.update(percentageOfNodesToScore=100),
            s.profile("escher-ledger").update(percentageOfNodesToScore=50),
        ),
        "percentageOfNodesToScore is 50",
        lambda s: s.profile("escher-ledger").pop("percentageOfNodesToScore"),
        "percentageOfNodesToScore: 100",
    ),
    Mistake(
        "ledger-fitted",
        lambda s: s.profile("escher-ledger").pop("pluginConfig"),
        "ignoredResourceGroups lacks escher.dev",
        _remember_fit,
        "ignoredResourceGroups: [escher.dev]",
    ),
    Mistake(
        "fit-ignores-us",
        lambda s: _ignore_domain(s, "escher"),
        "ignoredResourceGroups has escher.dev",
        lambda s: s.profile("escher").pop("pluginConfig"),
        "Remove it",
    ),
    Mistake(
        "filter-missing",
        lambda s: s.every.pop("filterVerb"),
        "no entry has filterVerb",
        lambda s: s.every.update(filterVerb="filter-only"),
        "filterVerb: filter-only",
    ),
    Mistake(
        "pods-unfiltered",
        _filter_for_marked_alone,
        f"managedResources is {MANAGED}",
        _filter_for_every_pod,
        "entry without managedResources, as filter-only",
    ),
    Mistake(
        "bind-missing",
        lambda s: s.marked.pop("bindVerb"),
        "no entry has bindVerb",
        lambda s: s.marked.update(bindVerb="bind"),
        "bindVerb: bind",
    ),
    Mistake(
        "bind-twice",
        _second_binder,
        "extenders[1] and extenders[2] have bindVerb",
        lambda s: s.scheduler["extenders"][2].pop("bindVerb"),
        "Keep it in one of them",
    ),
    Mistake(
        "preempt-missing",
        lambda s: s.every.pop("preemptVerb"),
        "no entry for every pod has preemptVerb",
        lambda s: s.every.update(preemptVerb="preempt"),
        "preemptVerb: preempt",
    ),
    Mistake(
        "preempt-missing",
        lambda s: s.marked.update(preemptVerb=s.every.pop("preemptVerb")),
        "no entry for every pod has preemptVerb",
        lambda s: s.every.update(preemptVerb=s.marked.pop("preemptVerb")),
        "without managedResources",
    ),
    Mistake(
        "lease-taken",
        lambda s: s.scheduler.pop("leaderElection"),
        "its lease is kube-system/kube-scheduler",
        lambda s: s.scheduler.update(leaderElection={"resourceName": "escher-scheduler"}),
        "leaderElection.resourceName: escher-scheduler",
    ),
    Mistake(
        "default-scheduler-twice",
        lambda s: s.scheduler["profiles"].append({"schedulerName": "default-scheduler"}),
        "profile default-scheduler",
        lambda s: s.scheduler["profiles"].pop(),
        "Remove the profile",
    ),
    Mistake(
        "profile-of-nobody",
        lambda s: s.scheduler["profiles"].append({"schedulerName": "batch"}),
        "scheduler_names is escher, escher-ledger",
        lambda s: (
            s.settings.update(scheduler_names=("escher", "escher-ledger", "batch")),
            s.mark["matchConditions"][0].update(
                expression='object.spec.?schedulerName.orValue("") in ["escher", "escher-ledger", "batch"]'
            ),
        ),
        "Name it in scheduler_names and in mark-pods.yaml",
        is_note=True,
    ),
    Mistake(
        "profile-missing",
        lambda s: s.scheduler["profiles"].remove(s.profile("escher-ledger")),
        "scheduler_names has escher-ledger",
        lambda s: s.settings.update(scheduler_names=("escher",)),
        "remove the name",
        is_note=True,
    ),
    Mistake(
        "client-limits",
        lambda s: s.scheduler["clientConnection"].pop("burst"),
        "clientConnection.burst is 100, the default",
        lambda s: s.scheduler["clientConnection"].update(burst=1000),
        "burst: 1000",
        is_note=True,
    ),
    Mistake(
        "long-back-off",
        lambda s: s.scheduler.pop("podMaxBackoffSeconds"),
        "podMaxBackoffSeconds is 10, the default",
        lambda s: s.scheduler.update(podMaxBackoffSeconds=1),
        "podMaxBackoffSeconds: 1",
        is_note=True,
    ),
    # -- its entries for Escher --
    Mistake(
        "time-out-unreadable",
        lambda s: s.marked.update(httpTimeout=60),
        "httpTimeout is 60,",
        lambda s: s.marked.update(httpTimeout="60s"),
        "httpTimeout: 60s",
    ),
    Mistake(
        "time-out-short",
        lambda s: s.marked.pop("httpTimeout"),
        "httpTimeout is 5s, the default",
        lambda s: s.marked.update(httpTimeout="60s"),
        "httpTimeout: 60s",
    ),
    Mistake(
        "time-out-short",
        lambda s: s.every.update(httpTimeout="29s500ms"),
        "httpTimeout is 29s500ms:",
        lambda s: s.every.update(httpTimeout="1m"),
        "httpTimeout: 60s",
    ),
    Mistake(
        "time-out-differs",
        lambda s: s.marked.update(httpTimeout="90s"),
        "httpTimeout is 90s, but the service assumes 60 s (scheduler_http_timeout_seconds)",
        lambda s: s.marked.update(httpTimeout="60s"),
        "scheduler_http_timeout_seconds: 90",
    ),
    Mistake(
        "time-out-differs",
        lambda s: s.settings.update(scheduler_http_timeout_seconds=45),
        "the service assumes 45 s",
        lambda s: [each.update(httpTimeout="45s") for each in s.scheduler["extenders"]],
        "httpTimeout: 45s",
    ),
    Mistake(
        "address-wrong",
        lambda s: s.marked.update(urlPrefix="http://127.0.0.1:8080"),
        "urlPrefix is 'http://127.0.0.1:8080'",
        lambda s: s.marked.update(urlPrefix="http://127.0.0.1:8080/scheduler"),
        "/scheduler",
    ),
    Mistake(
        "verb-unknown",
        lambda s: s.marked.update(prioritizeVerb="score"),
        "prioritizeVerb is 'score'",
        lambda s: s.marked.update(prioritizeVerb="prioritize"),
        "prioritizeVerb: prioritize",
    ),
    Mistake(
        "filter-verb-unfit",
        lambda s: s.every.update(filterVerb="filter"),
        "filterVerb is filter in an entry that does not bind",
        lambda s: s.every.update(filterVerb="filter-only"),
        "filterVerb: filter-only",
    ),
    Mistake(
        "filter-verb-unfit",
        _filter_only_for_every_pod,
        "filterVerb is filter-only in an entry that binds",
        lambda s: s.every.update(filterVerb="filter"),
        "filterVerb: filter.",
    ),
    Mistake(
        "ignorable",
        lambda s: s.every.update(ignorable=True),
        "ignorable is true",
        lambda s: s.every.update(ignorable=False),
        "ignorable: false",
    ),
    Mistake(
        "nodes-sent-whole",
        lambda s: s.every.pop("nodeCacheCapable"),
        "nodeCacheCapable is false",
        lambda s: s.every.update(nodeCacheCapable=True),
        "nodeCacheCapable: true",
        is_note=True,
    ),
    Mistake(
        "certificate-unverified",
        lambda s: s.over_https(certFile="/tls.crt", keyFile="/tls.key"),
        "tlsConfig names no caFile",
        lambda s: s.over_https(),
        "tlsConfig.caFile",
    ),
    Mistake(
        "certificate-unverified",
        _insecure,
        "tlsConfig.insecure is true",
        lambda s: s.marked["tlsConfig"].pop("insecure"),
        "remove insecure",
    ),
    Mistake(
        "https-not-configured",
        _https_by_address_alone,
        "without enableHTTPS and tlsConfig",
        lambda s: s.over_https(),
        "enableHTTPS: true and tlsConfig",
    ),
    Mistake(
        "client-certificate-missing",
        lambda s: s.over_https(caFile="/ca.crt"),
        "tlsConfig names no certFile, and the service requires a client's certificate (tls_client_ca = /ca.crt)",
        lambda s: s.over_https(),
        "tlsConfig.certFile and keyFile",
    ),
    Mistake(
        "in-the-clear",
        _in_clear_beyond_loopback,
        "urlPrefix is http://escher.escher-system.svc:8080/scheduler",
        _on_loopback,
        "a loopback address",
    ),
    Mistake("in-the-clear", _https_in_name_alone, "enableHTTPS is true", _not_https, "Write https:// in urlPrefix"),
    Mistake(
        "scheme-differs",
        lambda s: s.settings.update(tls_certificate="/tls.crt", tls_key="/tls.key"),
        "make it serve https",
        lambda s: s.over_https(),
        "Write https:// there",
    ),
    Mistake(
        "weight-missing",
        lambda s: s.marked.pop("weight"),
        "weight is None with prioritizeVerb",
        lambda s: s.marked.update(weight=1),
        "weight: 1",
    ),
    Mistake(
        "mark-not-managed",
        lambda s: s.marked.update(managedResources=[{"name": "escher.dev/mark", "ignoredByScheduler": True}]),
        "managedResources names escher.dev/mark, but not escher.dev/managed",
        lambda s: s.marked.update(managedResources=[{"name": MANAGED, "ignoredByScheduler": True}]),
        f"Name {MANAGED} there",
    ),
    Mistake(
        "mark-counted",
        lambda s: s.marked["managedResources"][0].pop("ignoredByScheduler"),
        f"{MANAGED} is not ignoredByScheduler",
        lambda s: s.marked["managedResources"][0].update(ignoredByScheduler=True),
        "ignoredByScheduler: true",
        is_note=True,
    ),
    # -- what is installed --
    Mistake(
        "api-server-unreachable",
        lambda s: setattr(s, "cluster_unreachable", "GET /version: connection refused"),
        "connection refused",
        lambda s: setattr(s, "cluster_unreachable", ""),
        "kubeconfig and context that work",
    ),
    Mistake(
        "kubernetes-untried",
        lambda s: setattr(s, "minor", 37),
        "it is 1.37, but this version of Escher is tested on 1.35 and 1.36",
        lambda s: setattr(s, "minor", 36),
        "See docs/upgrade.md",
        is_note=True,
    ),
    Mistake(
        "kubernetes-too-old",
        _without_marks,
        "it is 1.35",
        _one_entry_for_every_pod,
        "one entry of `extenders` for every pod",
    ),
    Mistake(
        "clock-skew",
        lambda s: setattr(s, "ahead", -31.0),
        "it is 31 s behind the clock of this machine",
        lambda s: setattr(s, "ahead", 0.0),
        "NTP",
    ),
    Mistake(
        "definition-missing",
        lambda s: s.definitions.pop(),
        "not installed",
        lambda s: s.definitions.append(SetUp().definitions[-1]),
        "kubectl apply -f deploy/crds/",
    ),
    Mistake(
        "definition-differs",
        lambda s: _schema(s).pop("expiresAt"),
        "properties.spec.properties.expiresAt",
        lambda s: setattr(s, "definitions", SetUp().definitions),
        "Apply deploy/crds/ of Escher 9.9",
    ),
    Mistake(
        "definition-differs",
        lambda s: s.definitions[1]["spec"]["versions"][0].update(name="v1alpha2"),
        "version v1alpha1 is not served; the cluster has v1alpha2",
        lambda s: setattr(s, "definitions", SetUp().definitions),
        "Apply deploy/crds/ of Escher 9.9",
    ),
    Mistake(
        "mark-missing",
        lambda s: s.policies.pop(0),
        f"no MutatingAdmissionPolicy puts {MANAGED} on pods",
        lambda s: setattr(s, "policies", SetUp().policies),
        "kubectl apply -f deploy/policies/mark-pods.yaml",
    ),
    Mistake(
        "mark-unbound",
        lambda s: s.bound.discard("mark-pods.escher.dev"),
        "no MutatingAdmissionPolicyBinding names it",
        lambda s: s.bound.add("mark-pods.escher.dev"),
        "kubectl apply -f deploy/policies/mark-pods.yaml",
    ),
    Mistake(
        "mark-misses-scheduler",
        lambda s: s.mark["matchConditions"][0].update(expression='object.spec.schedulerName in ["escher"]'),
        "do not name schedulerName escher-ledger",
        lambda s: s.mark["matchConditions"][0].update(
            expression="object.spec.schedulerName in ['escher', 'escher-ledger']"
        ),
        'Add "escher-ledger"',
    ),
    Mistake(
        "mark-differs",
        lambda s: s.mark["matchConditions"][2].update(expression='"escher.dev/gang" in object.metadata.labels'),
        "matchConditions needs-escher differs from deploy/policies/mark-pods.yaml",
        lambda s: setattr(s, "policies", SetUp().policies),
        "Apply that",
    ),
    Mistake(
        "mark-fails",
        lambda s: s.mark.pop("failurePolicy"),
        "failurePolicy is Fail",
        lambda s: s.mark.update(failurePolicy="Ignore"),
        "failurePolicy: Ignore",
        is_note=True,
    ),
    Mistake(
        "permission-missing",
        lambda s: s.denied.append(Permission("", "pods/binding", "create", "no gang is bound")),
        "may not create pods/binding; without that no gang is bound",
        lambda s: s.denied.clear(),
        'apiGroups: [""], resources: [pods/binding], verbs: [create]',
    ),
    Mistake(
        "permission-missing",
        lambda s: s.denied.append(PAST_BUDGETS),
        "may not delete pods; without that a disruption budget protects its pods from every priority",
        lambda s: s.settings.update(preempts_despite_budgets="never"),
        'apiGroups: [""], resources: [pods], verbs: [delete]',
    ),
    Mistake(
        "permission-missing",
        lambda s: s.denied.extend(Permission("escher.dev", "ephemeralresources", verb) for verb in ("list", "watch")),
        "may not list, watch ephemeralresources.escher.dev; without that the service does not work",
        lambda s: s.denied.clear(),
        'apiGroups: ["escher.dev"], resources: [ephemeralresources], verbs: [list, watch]',
    ),
    Mistake(
        "permission-missing",
        lambda s: s.denied.append(Permission("escher.dev", "transactionintents", "list", "nothing is written as one")),
        "may not list transactionintents.escher.dev",
        lambda s: s.denied.clear(),
        "Grant it in a Role of namespace escher-system",
    ),
    Mistake(
        "own-namespace-missing",
        lambda s: setattr(s, "has_own_namespace", False),
        "the service's own namespace does not exist",
        lambda s: setattr(s, "has_own_namespace", True),
        "kubectl create namespace escher-system",
    ),
    Mistake(
        "transaction-of-former-version",
        lambda s: s.resources.append(NOTED),
        "noted an unfinished transaction there",
        lambda s: s.resources.remove(NOTED),
        "docs/upgrade.md",
        is_note=True,
    ),
    Mistake(
        "name-claimed",
        lambda s: s.classes[0]["spec"].update(extendedResourceName="escher.dev/team.gpu"),
        "extendedResourceName is escher.dev/team.gpu",
        lambda s: s.classes[0]["spec"].update(extendedResourceName="example.com/gpu"),
        "another domain",
    ),
    # -- nodes --
    Mistake(
        "resource-unheeded",
        lambda s: s.resources[0].pop("status"),
        "created at 2027-01-31T10:00:00Z, it still has no condition Ready",
        lambda s: s.resources[0].update(SetUp().resources[0]),
        "Start the service",
    ),
    Mistake(
        "quota-exceeded",
        lambda s: s.resources[0]["status"]["conditions"][0].update(
            status="False", reason="QuotaExceeded", message="exceeded quota of namespace default"
        ),
        "1 EphemeralResource waits for free quota: exceeded quota of namespace default",
        lambda s: s.resources[0].update(SetUp().resources[0]),
        "See escher quota --namespace",
        is_note=True,
    ),
    Mistake(
        "status-reset",
        lambda s: _amounts(s, None, *_BOTH),
        f"{KEY} has wrong units on n1 (none, not 4)",
        lambda s: _amounts(s, "4", *_BOTH),
        "kubectl get node n1 -o yaml --show-managed-fields",
    ),
    Mistake(
        "status-reset",
        lambda s: _amounts(s, "0", *_BOTH),
        f"{KEY} has wrong units on n1 (0, not 4)",
        lambda s: _amounts(s, "4", *_BOTH),
        "stop that",
    ),
    Mistake(
        "status-half",
        lambda s: _amounts(s, None, "allocatable"),
        f"{KEY} is 4 in capacity and missing in allocatable",
        lambda s: _amounts(s, "4", *_BOTH),
        "write both",
    ),
    Mistake(
        "left-over",
        lambda s: [s.nodes[1]["status"][each].update({"escher.dev/old.x": "1"}) for each in _BOTH],
        "escher.dev/old.x is on n2, but no EphemeralResource defines it",
        lambda s: [s.nodes[1]["status"][each].pop("escher.dev/old.x") for each in _BOTH],
        '{"status": {"capacity": {"escher.dev/old.x": null}, "allocatable": {"escher.dev/old.x": null}}}',
        is_note=True,
    ),
    # -- pods --
    Mistake(
        "pod-unmarked",
        lambda s: s.pods.append(pod("lost-0", node=None, marked=False)),
        f"does not request {MANAGED}",
        lambda s: s.pods.__setitem__(-1, pod("lost-0", node=None)),
        "create it again",
    ),
    Mistake(
        "gate-of-nobody",
        lambda s: s.pods.append(pod("lost-0", node=None, scheduler="default-scheduler", **GATED)),
        "its schedulerName default-scheduler is not Escher's",
        lambda s: s.pods[-1]["spec"].pop("schedulingGates") and s.pods[-1]["metadata"].update(ORDINARY),
        "escher doctor --release-gates --namespace team",
    ),
    Mistake(
        "needs-itself",
        lambda s: s.pods.append(pod("escher-0", marked=False, metadata={**OURSELVES, "namespace": "kube-system"})),
        "schedulerName escher places no pod without Escher",
        lambda s: s.pods[-1]["spec"].update(schedulerName="default-scheduler"),
        "as deploy/chart does",
    ),
    Mistake(
        "gang-elsewhere",
        lambda s: s.pods.append(pod("lost-0", node=None, scheduler="default-scheduler")),
        "its schedulerName default-scheduler is not Escher's",
        lambda s: s.pods[-1]["spec"].update(schedulerName="escher"),
        "schedulerName: escher",
        is_note=True,
    ),
    Mistake(
        "foreign-scheduler",
        lambda s: s.pods.append(
            pod("web-9", node="n2", scheduler="default-scheduler", marked=False, metadata=ORDINARY)
        ),
        "1 of its pods are on nodes with Escher's pods",
        lambda s: s.pods[-1]["spec"].update(nodeName="n3"),
        "Separate them",
        is_note=True,
    ),
    # -- replicas --
    Mistake(
        "installed-twice",
        lambda s: s.pods.extend([replica("escher-a"), replica("trial-a", **{"app.kubernetes.io/instance": "trial"})]),
        "Escher is installed 2 times (pods escher-system/escher-a, escher-system/trial-a)",
        lambda s: s.pods.pop(),
        "Uninstall all but one",
        is_note=True,
    ),
    Mistake(
        "several-decide",
        lambda s: s.pods.extend([replica("escher-a"), replica("escher-b")]),
        "2 pods of the service, and escher-system/escher-a, escher-system/escher-b run without leader_election",
        lambda s: s.pods.pop(),
        "Scale it to 1",
    ),
    Mistake(
        "several-decide",
        lambda s: s.pods.extend([replica("escher-a"), replica("escher-b", **ELECTS), replica("escher-c", **ELECTS)]),
        "3 pods of the service, and escher-system/escher-a run without leader_election",
        lambda s: s.pods.pop(-3),
        "leaderElection.enabled: true",
    ),
    Mistake(
        "replica-alone",
        lambda s: s.pods.append(replica("escher-a", **ELECTS)),
        "is the only replica",
        lambda s: s.pods.append(replica("escher-b", **ELECTS)),
        "replicas: 2",
        is_note=True,
    ),
    Mistake(
        "replica-alone",
        _elected_by_settings,
        "is the only replica",
        lambda s: s.pods.append(replica("escher-b")),
        "replicas: 2",
        is_note=True,
    ),
    Mistake(
        "leader-unled",
        lambda s: s.settings.update(leader_election=True),
        "leader_election is true without leader_service",
        lambda s: s.settings.update(leader_service="escher"),
        "a Service without selector",
    ),
    # -- the service --
    Mistake(
        "service-not-ready",
        lambda s: s.service.update(not_ready="503: the service has not read the whole cluster yet"),
        "has not read the whole cluster",
        lambda s: s.service.update(not_ready=""),
        "its log",
    ),
    Mistake(
        "service-version",
        lambda s: s.service.update(version="9.8"),
        "it is Escher 9.8, but this command is 9.9",
        lambda s: s.service.update(version="9.9"),
        "the same version",
    ),
    Mistake(
        "watch-silent",
        lambda s: s.service.update(ages={"pods": 121.0, "nodes": 2.0}),
        "its watch on pods has been silent for 121 s",
        lambda s: s.settings.update(stale_after_seconds=0),
        "stale_after_seconds: 0",
    ),
    Mistake(
        "another-cluster",
        lambda s: s.service.update(nodes=frozenset({"m1", "m2"})),
        "its nodes are m1, m2, but here n1, n2",
        lambda s: s.service.update(nodes=frozenset({"n1", "n2"})),
        "kubeconfig and context of this cluster",
    ),
    Mistake(
        "certificate-ends",
        lambda s: s.service.update(certificate_ends=NOW + timedelta(days=3)),
        "its certificate expires on 2027-02-03 12:00 UTC",
        lambda s: s.service.update(certificate_ends=NOW + timedelta(days=90)),
        "Renew it",
    ),
    Mistake(
        "certificate-ends",
        lambda s: s.service.update(certificate_ends=NOW - timedelta(hours=1)),
        "its certificate expired on 2027-01-31 11:00 UTC",
        lambda s: s.service.update(certificate_ends=NOW + timedelta(days=90)),
        "Renew it",
    ),
    Mistake(
        "kind-lost",
        lambda s: s.service.update(lost={"daemonsets": "for 95 s (forbidden): until it can, this holds"}),
        "it cannot read daemonsets for 95 s (forbidden): until it can, this holds",
        lambda s: s.service.update(lost={}),
        "Let it list and watch daemonsets again",
    ),
    Mistake(
        "goes-without",
        lambda s: s.service.update(without=("escherpolicies",)),
        "it runs without escherpolicies",
        lambda s: s.service.update(without=()),
        "Let it list and watch",
        is_note=True,
    ),
    Mistake(
        "observe-only",
        lambda s: s.service.update(observes_only=True),
        "observe_only holds everywhere",
        lambda s: s.service.update(observes_only=False),
        "observe_only: false",
        is_note=True,
    ),
    Mistake(
        "setting-renamed",
        lambda s: s.renamed.append("saves_room is named backfill_reservation since version 0.1"),
        "saves_room is named backfill_reservation",
        lambda s: s.renamed.clear(),
        "Use the new name",
        is_note=True,
    ),
    Mistake(
        "waiting-kinds-exceeded",
        lambda s: s.service.update(kinds_beyond={"team": (1_000, 7)}),
        "it has 7 kinds of waiting pods beyond the 1000 of its quota",
        lambda s: s.service.update(kinds_beyond={}),
        "waiting_kinds",
        is_note=True,
    ),
    Mistake(
        "open-to-all",
        lambda s: s.settings.update(host="0.0.0.0"),
        "host is 0.0.0.0, without tls_client_ca",
        lambda s: s.over_https(),
        "tls_client_ca",
    ),
)
"""Each is found by that check and by no other. What two find at once is in the tests."""
