"""Checks of the running service: whether it answers, follows this cluster, and has this version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from extender.doctor.facts import Facts, Part, named, some
from extender.doctor.findings import Check, Found, Severity
from extender.doctor.scheduler_file import on_this_machine

_SILENT = 120.0
"""Seconds: kube-apiserver sends a bookmark every minute."""
_ENDS_SOON = timedelta(days=14)


def _unreachable(facts: Facts) -> Iterator[Found]:
    if facts.service.unreachable:
        mend = "Start it (escher serve), or give its address with --url or ESCHER_URL."
        yield Found(facts.service.address, facts.service.unreachable, mend)


def _not_ready(facts: Facts) -> Iterator[Found]:
    if facts.service.not_ready:
        wrong = f"it is not ready: {facts.service.not_ready}"
        mend = (
            "If this persists, see in its log which kind it cannot list; often a permission or definition is missing."
        )
        yield Found(facts.service.address, wrong, mend)


def _another_version(facts: Facts) -> Iterator[Found]:
    if facts.service.version != facts.shipped.version:
        wrong = f"it is Escher {facts.service.version}, but this command is {facts.shipped.version}"
        mend = "Use the same version of both; definitions and admission policies are compared with this command's."
        yield Found(facts.service.address, wrong, mend)


def _deaf(facts: Facts) -> Iterator[Found]:
    if not facts.settings.stale_after_seconds:
        return
    for kind, age in facts.service.ages.items():
        if age > _SILENT:
            wrong = f"its watch on {kind} has been silent for {age:.0f} s; Escher plans nothing new after "
            wrong += f"{facts.settings.stale_after_seconds:g} s (stale_after_seconds)"
            mend = "See its log for why; if kube-apiserver's watch cache is off, set stale_after_seconds: 0."
            yield Found(facts.service.address, wrong, mend)


def _another_cluster(facts: Facts) -> Iterator[Found]:
    here, there = {named(each) for each in facts.cluster.nodes}, facts.service.nodes
    if here and there and not here & there:
        wrong = f"it watches another cluster: its nodes are {some(sorted(there))}, but here {some(sorted(here))}"
        mend = "Give it the kubeconfig and context of this cluster, or give this command those of its cluster."
        yield Found(facts.service.address, wrong, mend)


def _ends_soon(facts: Facts) -> Iterator[Found]:
    ends = facts.service.certificate_ends
    if ends is not None and ends - facts.now < _ENDS_SOON:
        when = f"{ends:%Y-%m-%d %H:%M} UTC"
        wrong = f"its certificate {'expired' if ends <= facts.now else 'expires'} on {when}"
        yield Found(facts.service.address, wrong, "Renew it, and set its renewal earlier.")


def _observes(facts: Facts) -> Iterator[Found]:
    if facts.service.observes_only:
        wrong = "observe_only holds everywhere: it only decides and explains; pods are placed as without it"
        yield Found(facts.service.address, wrong, "Set observe_only: false in its settings when you have seen enough.")


def _beyond(facts: Facts) -> Iterator[Found]:
    for namespace, (limit, beyond) in facts.service.kinds_beyond.items():
        wrong = f"it has {beyond} kinds of waiting pods beyond the {limit} of its quota: these may be requeued later"
        mend = "Delete pods that need not wait, or allow more kinds in the settings (isolation, waiting_kinds)."
        yield Found(f"Namespace {namespace}", wrong, mend)


def _without(facts: Facts) -> Iterator[Found]:
    for kind in facts.service.without:
        wrong = f"it runs without {kind}; docs/operations.md#permissions says what is missing then"
        mend = f"Let it list and watch {kind}, and remove {kind} from the setting `without`."
        yield Found(facts.service.address, wrong, mend)


def _lost(facts: Facts) -> Iterator[Found]:
    for kind, how in facts.service.lost.items():
        mend = f"Let it list and watch {kind} again, or find out why the API server does not answer."
        yield Found(facts.service.address, f"it cannot read {kind} {how}", mend)


def _open(facts: Facts) -> Iterator[Found]:
    if not on_this_machine(facts.settings.host) and facts.settings.tls_client_ca is None:
        wrong = f"host is {facts.settings.host}, without tls_client_ca: any client there can act as kube-scheduler"
        mend = "Set tls_certificate, tls_key and tls_client_ca, or listen on 127.0.0.1."
        yield Found("settings", wrong, mend)


def _renamed(facts: Facts) -> Iterator[Found]:
    for each in facts.renamed:
        yield Found("settings", each, "Use the new name in the settings file.")


CHECKS = (
    Check("service-unreachable", "no service answers at the given address", _unreachable, ()),
    Check("service-not-ready", "it has not read the cluster yet", _not_ready, (Part.SERVICE,)),
    Check("service-version", "another version than this command's", _another_version, (Part.SERVICE,)),
    Check("watch-silent", "a watch of the service that has been silent for two minutes", _deaf, (Part.SERVICE,)),
    Check("another-cluster", "it watches a cluster with other nodes", _another_cluster, (Part.ITS_NODES, Part.NODES)),
    Check("certificate-ends", "its certificate expires within 14 days", _ends_soon, (Part.CERTIFICATE,)),
    Check("observe-only", "it is set to observe only", _observes, (Part.SAFETY_SWITCHES,), Severity.NOTE),
    Check(
        "waiting-kinds-exceeded",
        "namespaces with more kinds of waiting pods than their quota",
        _beyond,
        (Part.QUOTAS, Part.PODS),
        Severity.NOTE,
    ),
    Check("kind-lost", "kinds that it can no longer read", _lost, (Part.SERVICE,)),
    Check("goes-without", "kinds that it does not read", _without, (Part.SERVICE,), Severity.NOTE),
    Check("open-to-all", "settings that open it to other machines without `tls_client_ca`", _open, (Part.SETTINGS,)),
    Check("setting-renamed", "settings that have a new name", _renamed, (Part.SETTINGS,), Severity.NOTE),
)
