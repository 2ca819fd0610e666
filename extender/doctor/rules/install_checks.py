"""Checks of the cluster: version, definitions, admission policies, permissions and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from extender.core.names import FORMER_INTENT, MANAGED, in_domain
from extender.doctor.facts import Facts, Json, Part, metadata_of, named, some, spec_of
from extender.doctor.findings import Check, Found, Severity
from extender.doctor.permissions import IN_OWN_NAMESPACE, PAST_BUDGETS, TO_LEAD

_MARKS_FROM = 36
"""The first minor version that serves MutatingAdmissionPolicy as v1."""
_SKEW = 10.0
_MARK = "deploy/policies/mark-pods.yaml"
_APPLY_MARK = f"kubectl apply -f {_MARK}"


def _unreachable(facts: Facts) -> Iterator[Found]:
    if facts.cluster.unreachable:
        mend = "Name a kubeconfig and context that work: kubectl --kubeconfig PATH --context NAME get nodes."
        yield Found(facts.cluster.address or "cluster", facts.cluster.unreachable, mend)


def _untried(facts: Facts) -> Iterator[Found]:
    tried = facts.shipped.minors
    if not tried[0] <= facts.cluster.minor <= tried[-1]:
        on = " and ".join(f"1.{minor}" for minor in tried)
        wrong = f"it is 1.{facts.cluster.minor}, but this version of Escher is tested on {on}"
        mend = "See docs/upgrade.md for what Escher needs from Kubernetes, and try it first on a test cluster."
        yield Found("Kubernetes", wrong, mend)


def _too_old(facts: Facts) -> Iterator[Found]:
    if facts.cluster.minor < _MARKS_FROM and facts.relies_on_the_mark and not _marking(facts):
        wrong = (
            f"it is 1.{facts.cluster.minor}, and MutatingAdmissionPolicy v1 comes with 1.{_MARKS_FROM}: nothing marks "
            "pods, and gangs without the mark are refused"
        )
        mend = (
            "Use one entry of `extenders` for every pod: scheduler-config/escher.yaml says how, above its `extenders`."
        )
        yield Found("Kubernetes", wrong, mend)


def _skewed(facts: Facts) -> Iterator[Found]:
    ahead = facts.cluster.ahead
    if abs(ahead) > _SKEW:
        wrong = f"it is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the clock of this machine"
        mend = "Synchronize both (NTP): times to live end by the service's clock, certificates by both."
        yield Found("API server's clock", wrong, mend)


# -- definitions of Escher's kinds -----------------------------------------------------------------------------------


def _installed(facts: Facts) -> Iterator[tuple[Json, Json | None]]:
    """Each shipped definition, and the cluster's version of it."""
    there = {named(each): each for each in facts.cluster.definitions}
    for shipped in facts.shipped.definitions:
        yield shipped, there.get(named(shipped))


def _versions(definition: Json) -> dict[str, Json]:
    return {str(each.get("name")): each for each in spec_of(definition).get("versions") or ()}


def _undefined(facts: Facts) -> Iterator[Found]:
    for shipped, there in _installed(facts):
        if there is None:
            wrong = "the CustomResourceDefinition is not installed"
            yield Found(named(shipped), wrong, "kubectl apply -f deploy/crds/")


def _defined_otherwise(facts: Facts) -> Iterator[Found]:
    for shipped, there in _installed(facts):
        if there is None:
            continue
        found = _versions(there)
        for name, version in _versions(shipped).items():
            if not found.get(name, {}).get("served"):
                wrong = f"version {name} is not served; the cluster has {', '.join(found) or 'none'}"
            elif (where := _difference(_schema(version), _schema(found[name]))) is not None:
                wrong = f"version {name} differs from that of Escher {facts.shipped.version} at {where or 'its schema'}"
            else:
                continue
            mend = f"Apply deploy/crds/ of Escher {facts.shipped.version}, or use the version that installed these."
            yield Found(named(shipped), wrong, mend)


def _schema(version: Json) -> Any:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _difference(shipped: Any, there: Any, where: str = "") -> str | None:
    """The first difference; None if there is none. Descriptions do not count."""
    if isinstance(shipped, Mapping) and isinstance(there, Mapping):
        for key in sorted({*shipped, *there} - {"description"}):
            if (place := _difference(shipped.get(key), there.get(key), f"{where}.{key}")) is not None:
                return place
        return None
    if isinstance(shipped, list) and isinstance(there, list) and len(shipped) == len(there):
        for at, pair in enumerate(zip(shipped, there, strict=True)):
            if (place := _difference(*pair, f"{where}[{at}]")) is not None:
                return place
        return None
    return None if shipped == there else where.removeprefix(".")


# -- the mark --------------------------------------------------------------------------------------------------------


def _marking(facts: Facts) -> list[Json]:
    """The admission policies that set the mark, under any name."""
    if not facts.relies_on_the_mark:
        return []
    return [each for each in facts.cluster.policies if any(MANAGED in text for text in _mutations(each).values())]


def _mutations(policy: Json) -> dict[str, str]:
    found = {}
    for at, each in enumerate(spec_of(policy).get("mutations") or ()):
        said = each.get("applyConfiguration") or each.get("jsonPatch") or {}
        found[f"mutations[{at}]"] = " ".join(str(said.get("expression", "")).split())
    return found


def _conditions(policy: Json) -> dict[str, str]:
    said = spec_of(policy).get("matchConditions") or ()
    return {f"matchConditions {each.get('name')}": " ".join(str(each.get("expression")).split()) for each in said}


def _nobody_marks(facts: Facts) -> Iterator[Found]:
    if facts.relies_on_the_mark and facts.cluster.minor >= _MARKS_FROM and not _marking(facts):
        wrong = f"no MutatingAdmissionPolicy puts {MANAGED} on pods: gangs that do not request it are refused"
        yield Found("mark-pods.escher.dev", wrong, _APPLY_MARK)


def _unbound(facts: Facts) -> Iterator[Found]:
    for policy in _marking(facts):
        if named(policy) not in facts.cluster.bound:
            wrong = "no MutatingAdmissionPolicyBinding names it: it marks nothing"
            yield Found(named(policy), wrong, _APPLY_MARK)


def _unmentioned(facts: Facts) -> Iterator[Found]:
    for policy in _marking(facts):
        chosen = [text for text in _conditions(policy).values() if "schedulerName" in text]
        for name in facts.ours if chosen else ():
            if not any(f'"{name}"' in text or f"'{name}'" in text for text in chosen):
                wrong = f"matchConditions do not name schedulerName {name} of scheduler_names: its pods are not marked"
                yield Found(named(policy), wrong, f'Add "{name}" to the condition of-escher.')


def _marks_otherwise(facts: Facts) -> Iterator[Found]:
    wanted = _conditions(facts.shipped.mark_policy) | _mutations(facts.shipped.mark_policy)
    for policy in _marking(facts):
        there = _conditions(policy) | _mutations(policy)
        for where, text in wanted.items():
            # The user decides for which schedulers it marks pods.
            if "schedulerName" not in text and there.get(where) != text:
                wrong = f"{where} differs from {_MARK} of Escher {facts.shipped.version}: it may miss pods"
                yield Found(named(policy), wrong, f"Apply that file with your own schedulers' names: {_APPLY_MARK}")


def _fails(facts: Facts) -> Iterator[Found]:
    for policy in _marking(facts):
        said = spec_of(policy).get("failurePolicy") or "Fail"
        if said != "Ignore":
            wrong = f"failurePolicy is {said}: if an expression fails for a pod, the API server rejects the pod"
            yield Found(named(policy), wrong, "Set failurePolicy: Ignore; Escher refuses unmarked pods with a reason.")


# -- permissions, and other claims to Escher's names -------------------------------------------------------------------


def _forbidden(facts: Facts) -> Iterator[Found]:
    by_resource: dict[tuple[str, str, str], list[str]] = {}
    unneeded = (PAST_BUDGETS,) if facts.settings.preempts_despite_budgets == "never" else ()
    for each in [each for each in facts.cluster.denied if each not in unneeded]:
        by_resource.setdefault((each.group, each.resource, each.without), []).append(each.verb)
    for (group, resource, without), verbs in by_resource.items():
        full = f"{resource}.{group}" if group else resource
        wrong = f"may not {', '.join(verbs)} {full}; without that {without or 'the service does not work'}"
        rule = f'apiGroups: ["{group}"], resources: [{resource}], verbs: [{", ".join(verbs)}]'
        led = {(each.group, each.resource) for each in TO_LEAD}
        own = {(each.group, each.resource) for each in IN_OWN_NAMESPACE}
        role = "Role of the Lease's namespace" if (group, resource) in led else "ClusterRole"
        role = f"Role of namespace {facts.cluster.own_namespace}" if (group, resource) in own else role
        mend = f"Grant it in a {role} that is bound to it: {rule}."
        yield Found(facts.cluster.account, wrong, mend)


def _no_own_namespace(facts: Facts) -> Iterator[Found]:
    if not facts.cluster.has_own_namespace:
        wrong = "the service's own namespace does not exist: no transaction writes several objects atomically"
        name = facts.cluster.own_namespace
        yield Found(
            f"namespace {name}", wrong, f"kubectl create namespace {name}, or set service_namespace to another."
        )


def _former_intents(facts: Facts) -> Iterator[Found]:
    noted = (each for each in facts.cluster.resources if FORMER_INTENT in (metadata_of(each).get("annotations") or {}))
    if left := [named(each) for each in noted if not spec_of(each).get("nodes")]:
        wrong = (
            "an earlier version noted an unfinished transaction there, and this version does not roll it back "
            f"({some(left)})"
        )
        mend = "Check the objects that docs/upgrade.md names; then delete it: kubectl delete ephemeralresource."
        yield Found(f"EphemeralResource {left[0]}", wrong, mend)


def _claimed(facts: Facts) -> Iterator[Found]:
    for each in facts.cluster.classes:
        name = str(spec_of(each).get("extendedResourceName") or "")
        if in_domain(name):
            wrong = f"extendedResourceName is {name}: pods that request it wait for a device instead"
            yield Found(f"DeviceClass {metadata_of(each).get('name')}", wrong, "Give it a name of another domain.")


CHECKS = (
    Check("api-server-unreachable", "no API server answers where the kubeconfig says", _unreachable, ()),
    Check(
        "kubernetes-untried",
        "a minor version of Kubernetes that Escher is not tested on",
        _untried,
        (Part.VERSION,),
        Severity.NOTE,
    ),
    Check(
        "kubernetes-too-old",
        "Kubernetes before 1.36 with an entry for marked pods, which nothing marks",
        _too_old,
        (Part.VERSION, Part.MARKING),
    ),
    Check("clock-skew", "clocks of API server and this machine more than 10 s apart", _skewed, (Part.CLOCK,)),
    Check("definition-missing", "an Escher kind that is not installed", _undefined, (Part.DEFINITIONS,)),
    Check("definition-differs", "a definition of another Escher version", _defined_otherwise, (Part.DEFINITIONS,)),
    Check("mark-missing", "no admission policy that marks pods", _nobody_marks, (Part.MARKING, Part.VERSION)),
    Check("mark-unbound", "that policy without a binding", _unbound, (Part.MARKING, Part.VERSION)),
    Check(
        "mark-misses-scheduler",
        "that policy without one of `scheduler_names`",
        _unmentioned,
        (Part.MARKING, Part.VERSION),
    ),
    Check("mark-differs", "that policy of another Escher version", _marks_otherwise, (Part.MARKING, Part.VERSION)),
    Check("mark-fails", "that policy with `failurePolicy: Fail`", _fails, (Part.MARKING, Part.VERSION), Severity.NOTE),
    Check(
        "permission-missing",
        "a permission that the service needs and lacks",
        _forbidden,
        (Part.PERMISSIONS,),
    ),
    Check(
        "own-namespace-missing",
        "the namespace for objects that only the service may write does not exist",
        _no_own_namespace,
        (Part.OWN_NAMESPACE,),
    ),
    Check(
        "transaction-of-former-version",
        "an object with an unfinished transaction of an earlier version",
        _former_intents,
        (Part.RESOURCES,),
        Severity.NOTE,
    ),
    Check("name-claimed", "a DeviceClass with an Escher resource name", _claimed, (Part.CLASSES,)),
)
