"""Checks of kube-scheduler's configuration as a whole: its profiles, and its entries for Escher."""

from __future__ import annotations

from collections.abc import Iterator

from extender.core.names import DOMAIN
from extender.doctor.facts import Facts, Part
from extender.doctor.findings import Check, Found, Severity
from extender.doctor.scheduler_file import DEFAULT_PROFILE, Entry, Profile, SchedulerFile

_API_VERSION = "kubescheduler.config.k8s.io/v1"
_FITTING, _LEDGER = "escher", "escher-ledger"
"""The shipped profiles: the built-in fit sees ephemeral resources, or only the ledger does."""
_CLUSTERS_LEASE = "kube-system/kube-scheduler"
_FEW_REQUESTS = 50
"""kube-scheduler's own default of `clientConnection.qps`."""
_LONG_BACK_OFF = 10
"""kube-scheduler's own default of `podMaxBackoffSeconds`."""


def _another_version(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        said = file.document.get("apiVersion")
        if said != _API_VERSION:
            yield Found(file.name, f"apiVersion is {said!r}, which kube-scheduler rejects", f"Write {_API_VERSION}.")


def _no_entry(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        served = [each for each in facts.ours if each in file.profiles]
        if served and not facts.entries_of(file):
            wrong = f"it has {' and '.join(served)}, but no extender for Escher: gangs are placed pod by pod"
            yield Found(file.name, wrong, "Add the `extenders` of scheduler-config/escher.yaml.")


def _profiles(facts: Facts) -> Iterator[Profile]:
    """The profiles of the service's pods."""
    for file in facts.files:
        yield from (each for name, each in file.profiles.items() if name in facts.ours)


def _sampled(facts: Facts) -> Iterator[Found]:
    for profile in _profiles(facts):
        alone = profile.name == _LEDGER or (profile.ignores_our_domain and profile.name != _FITTING)
        if alone and profile.sampling != 100:
            wrong = (
                f"percentageOfNodesToScore is {profile.sampling}: NodeResourcesFit does not find the node with the "
                "resource, and the sample may miss it"
            )
            yield Found(profile.where, wrong, "Set percentageOfNodesToScore: 100 in this profile.")


def _fitted(facts: Facts) -> Iterator[Found]:
    for profile in _profiles(facts):
        if profile.name == _LEDGER and not profile.ignores_our_domain:
            wrong = (
                f"ignoredResourceGroups lacks {DOMAIN}: NodeResourcesFit waits until a resource is on its node, "
                f"as in profile {_FITTING}"
            )
            mend = f"Set ignoredResourceGroups: [{DOMAIN}] in the args of NodeResourcesFit, as shipped."
            yield Found(profile.where, wrong, mend)


def _not_fitted(facts: Facts) -> Iterator[Found]:
    for profile in _profiles(facts):
        if profile.name == _FITTING and profile.ignores_our_domain:
            wrong = (
                f"ignoredResourceGroups has {DOMAIN}: NodeResourcesFit does not find nodes with a resource before "
                "kube-scheduler samples nodes"
            )
            yield Found(profile.where, wrong, f"Remove it; pods that need only the ledger use {_LEDGER}.")


def _groups(facts: Facts) -> Iterator[tuple[SchedulerFile, list[Entry]]]:
    """Each file with entries for Escher, and these entries."""
    for file in facts.files:
        if entries := facts.entries_of(file):
            yield file, entries


def _nobody_filters(facts: Facts) -> Iterator[Found]:
    for file, entries in _groups(facts):
        if not any("filterVerb" in each.verbs for each in entries):
            wrong = "no entry has filterVerb: Escher reserves nothing and plans no gang"
            yield Found(file.name, wrong, "Set filterVerb: filter-only in an entry without managedResources.")


def _some_are_not_filtered(facts: Facts) -> Iterator[Found]:
    for _, entries in _groups(facts):
        filtering = [each for each in entries if "filterVerb" in each.verbs]
        if filtering and not any(each.of_every_pod for each in filtering):
            wrong = f"managedResources is {', '.join(filtering[0].managed)}: ordinary pods take reserved capacity"
            mend = "Move filterVerb and preemptVerb to an entry without managedResources, as filter-only and preempt."
            yield Found(filtering[0].where, wrong, mend)


def _nobody_binds(facts: Facts) -> Iterator[Found]:
    for file, entries in _groups(facts):
        if not any("bindVerb" in each.verbs for each in entries):
            wrong = "no entry has bindVerb: members of a gang do not wait for each other, and gangs are bound in part"
            yield Found(file.name, wrong, "Set bindVerb: bind in the entry whose managedResources has the mark.")


def _two_bind(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        binding = [each.where.partition(": ")[2] for each in file.entries if "bindVerb" in each.verbs]
        if len(binding) > 1:
            wrong = f"{' and '.join(binding)} have bindVerb: kube-scheduler rejects the file"
            mend = "Keep it in one of them; two extenders that must bind need a kube-scheduler each."
            yield Found(file.name, wrong, mend)


def _preemption_unseen(facts: Facts) -> Iterator[Found]:
    for file, entries in _groups(facts):
        if not any("preemptVerb" in each.verbs and each.of_every_pod for each in entries):
            wrong = "no entry for every pod has preemptVerb: preemption by other pods leaves gangs in part"
            yield Found(file.name, wrong, "Set preemptVerb: preempt in the entry without managedResources.")


def _the_clusters_lease(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        if file.lease == _CLUSTERS_LEASE and DEFAULT_PROFILE not in file.profiles:
            wrong = (
                f"its lease is {_CLUSTERS_LEASE}, that of the cluster's own kube-scheduler: one of the two never runs"
            )
            yield Found(file.name, wrong, "Set leaderElection.resourceName: escher-scheduler.")


def _the_clusters_pods(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        if DEFAULT_PROFILE in file.profiles and file.lease != _CLUSTERS_LEASE:
            wrong = f"it has a profile {DEFAULT_PROFILE}, but is not the cluster's own: both place the same pods"
            yield Found(file.profiles[DEFAULT_PROFILE].where, wrong, "Remove the profile, unless it runs alone.")


def _of_nobody(facts: Facts) -> Iterator[Found]:
    for file, _ in _groups(facts):
        for name, profile in file.profiles.items():
            if name not in facts.ours and name != DEFAULT_PROFILE:
                wrong = (
                    f"it asks Escher about its pods, but scheduler_names is {', '.join(facts.ours)}: they are foreign"
                )
                mend = "Name it in scheduler_names and in mark-pods.yaml, or give it a kube-scheduler without Escher."
                yield Found(profile.where, wrong, mend)


def _unserved(facts: Facts) -> Iterator[Found]:
    served = {name for file in facts.schedulers for name in file.profiles}
    for name in facts.ours:
        if name not in served:
            wrong = f"scheduler_names has {name}, but no given file has such a profile: its pods wait forever"
            yield Found("settings", wrong, "Add the profile, give its file too, or remove the name.")


def _few_requests(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        said = file.document.get("clientConnection") or {}
        for field, most in (("qps", _FEW_REQUESTS), ("burst", 2 * _FEW_REQUESTS)):
            if 0 <= (said.get(field) or 0) <= most:
                now = said.get(field) or f"{most}, the default"
                wrong = f"clientConnection.{field} is {now}: it slows gangs with dozens of members"
                yield Found(file.name, wrong, f"Set {field}: 1000.")


def _long_back_off(facts: Facts) -> Iterator[Found]:
    for file in facts.files:
        seconds = file.document.get("podMaxBackoffSeconds") or _LONG_BACK_OFF
        if seconds >= _LONG_BACK_OFF:
            said = "" if "podMaxBackoffSeconds" in file.document else ", the default"
            wrong = f"podMaxBackoffSeconds is {seconds}{said}: a requeued gang holds its reservation idle for as long"
            yield Found(file.name, wrong, "Set podMaxBackoffSeconds: 1.")


_FILES = (Part.SCHEDULERS,)
CHECKS = (
    Check("api-version-unknown", f"an `apiVersion` other than `{_API_VERSION}`", _another_version, _FILES),
    Check("extender-missing", "an Escher profile, but no extender for Escher", _no_entry, _FILES),
    Check("ledger-sampled", "`escher-ledger` with sampling", _sampled, _FILES),
    Check("ledger-fitted", "`escher-ledger` without `ignoredResourceGroups`", _fitted, _FILES),
    Check("fit-ignores-us", "`escher` with `ignoredResourceGroups`", _not_fitted, _FILES),
    Check("filter-missing", "no `filterVerb`", _nobody_filters, _FILES),
    Check("pods-unfiltered", "`filterVerb` only for pods with the mark", _some_are_not_filtered, _FILES),
    Check("bind-missing", "no `bindVerb`", _nobody_binds, _FILES),
    Check("bind-twice", "two extenders with `bindVerb`", _two_bind, _FILES),
    Check("preempt-missing", "no `preemptVerb`, or only for pods with the mark", _preemption_unseen, _FILES),
    Check("lease-taken", "the lease of the cluster's own kube-scheduler", _the_clusters_lease, _FILES),
    Check("default-scheduler-twice", "a profile `default-scheduler` in a second scheduler", _the_clusters_pods, _FILES),
    Check("profile-of-nobody", "a profile that is not in `scheduler_names`", _of_nobody, _FILES, Severity.NOTE),
    Check("profile-missing", "a name in `scheduler_names` without a profile", _unserved, _FILES, Severity.NOTE),
    Check("client-limits", "`clientConnection` with kube-scheduler's defaults", _few_requests, _FILES, Severity.NOTE),
    Check(
        "long-back-off",
        "`podMaxBackoffSeconds` with kube-scheduler's default",
        _long_back_off,
        _FILES,
        Severity.NOTE,
    ),
)
