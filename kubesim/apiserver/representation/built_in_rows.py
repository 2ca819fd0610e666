"""Rows of the built-in kinds in a Table: the real kube-apiserver's columns, and their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubesim.apiserver.representation.ages import AGE, NAME, Column, age, column, human_duration, seconds, since
from kubesim.apiserver.representation.pod_row import POD_COLUMNS, pod_cells
from kubesim.kinds import Json

Cells = Callable[[Json, float], list[Any]]
"""Returns the cells of an object at a time, in seconds since the epoch."""
_UNSET = "<unset>"


def _name(item: Json) -> str:
    return str(item["metadata"].get("name", ""))


def _join(parts: Iterable[str]) -> str:
    return ",".join(parts)


def _node(item: Json, now: float) -> list[Any]:
    status, metadata = item.get("status") or {}, item["metadata"]
    ready = [each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"]
    said = [("Ready" if ready[-1] == "True" else "NotReady") if ready else "Unknown"]
    if (item.get("spec") or {}).get("unschedulable"):
        said.append("SchedulingDisabled")
    labels = metadata.get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles = (roles | {labels.get("kubernetes.io/role", "")}) - {""}
    facts = status.get("nodeInfo") or {}
    kernel = facts.get("kernelVersion") or "<unknown>"
    if facts.get("architecture"):
        kernel += f" ({facts['architecture']})"
    addresses = status.get("addresses") or ()
    inner, outer = (
        next((each.get("address", "") for each in addresses if each.get("type") == kind), "<none>")
        for kind in ("InternalIP", "ExternalIP")
    )
    return [
        _name(item),
        _join(said),
        _join(sorted(roles)) or "<none>",
        age(item, now),
        facts.get("kubeletVersion") or "",
        inner,
        outer,
        facts.get("osImage") or "<unknown>",
        kernel,
        facts.get("containerRuntimeVersion") or "<unknown>",
    ]


_JOB_CONDITIONS = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""A job's status text by its conditions, the first that holds; "": it is being deleted."""


def _job(item: Json, now: float) -> list[Any]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    holds = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    if item["metadata"].get("deletionTimestamp"):
        holds.add("")
    said = next((word for condition, word in _JOB_CONDITIONS if condition in holds), "Running")
    wanted, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if wanted is None:
        wanted = f"1 of {parallelism}" if parallelism > 1 else 1
    duration = ""
    if (started := seconds(status.get("startTime"))) is not None:
        ended = seconds(status.get("completionTime"))
        duration = human_duration((now if ended is None else ended) - started)
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return [
        _name(item),
        said,
        f"{status.get('succeeded') or 0}/{wanted}",
        duration,
        age(item, now),
        _join(each.get("name", "") for each in containers),
        _join(each.get("image", "") for each in containers),
        _selector(spec.get("selector")),
    ]


def _daemon_set(item: Json, now: float) -> list[Any]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    containers = pod.get("containers") or ()
    return [
        _name(item),
        *(status.get(count) or 0 for count in counts),
        _selector({"matchLabels": pod.get("nodeSelector")}),
        age(item, now),
        _join(each.get("name", "") for each in containers),
        _join(each.get("image", "") for each in containers),
        _selector(spec.get("selector")),
    ]


def _selector(selector: Json | None) -> str:
    """A LabelSelector in the syntax of `-l`, sorted by key."""
    selector = selector or {}
    said = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], _join(sorted(each.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        said.append((key, forms.get(each["operator"], f"!{key}")))
    return _join(text for _, text in sorted(said)) or "<none>"


def _event(item: Json, now: float) -> list[Any]:
    """Cells of an event of either API; events.k8s.io renames the fields of the core API."""

    def fact(*names: str) -> Any:
        return next((item[name] for name in names if item.get(name)), None)

    first = since(fact("firstTimestamp", "deprecatedFirstTimestamp", "eventTime"), now)
    last = since(latest, now) if (latest := fact("lastTimestamp", "deprecatedLastTimestamp")) else first
    count = fact("count", "deprecatedCount") or 1
    if series := item.get("series"):
        last, count = since(series.get("lastObservedTime"), now), series.get("count") or 0
    target = fact("involvedObject", "regarding") or {}
    source = fact("source", "deprecatedSource") or {}
    reporters = (
        source.get("component") or fact("reportingComponent", "reportingController") or "",
        source.get("host") or fact("reportingInstance") or "",
    )
    named = f"{target.get('kind', '').lower()}/{target['name']}" if target.get("name") else None
    return [
        last,
        item.get("type") or "",
        item.get("reason") or "",
        named or target.get("kind", "").lower(),
        target.get("fieldPath") or "",
        ", ".join(reporters) if reporters[1] else reporters[0],
        (fact("message", "note") or "").strip(),
        first,
        count,
        _name(item),
    ]


def _service(item: Json, now: float) -> list[Any]:
    spec = item.get("spec") or {}
    ports = [
        f"{each['port']}{':' + str(each['nodePort']) if each.get('nodePort') else ''}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports") or ()
    ]
    of_type, external = spec.get("type") or "ClusterIP", list(spec.get("externalIPs") or ())
    if of_type == "LoadBalancer":
        ingress = ((item.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        external = sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""}) + external
    none = {"LoadBalancer": "<pending>", "ExternalName": spec.get("externalName") or ""}.get(of_type, "<none>")
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or "<none>"]
    selector = sorted(f"{key}={value}" for key, value in (spec.get("selector") or {}).items())
    return [
        _name(item),
        of_type,
        addresses[0],
        none if of_type == "ExternalName" else _join(external) or none,
        _join(ports) or "<none>",
        age(item, now),
        _join(selector) or "<none>",
    ]


def _budget(item: Json, now: float) -> list[Any]:
    spec = item.get("spec") or {}
    limits = [str(spec[each]) if spec.get(each) is not None else "N/A" for each in ("minAvailable", "maxUnavailable")]
    return [_name(item), *limits, (item.get("status") or {}).get("disruptionsAllowed") or 0, age(item, now)]


def _priority_class(item: Json, now: float) -> list[Any]:
    said = [_name(item), item.get("value") or 0, bool(item.get("globalDefault")), age(item, now)]
    return [*said, item.get("preemptionPolicy") or ""]


def _wide(*names_and_descriptions: str) -> list[Column]:
    names, descriptions = names_and_descriptions[::2], names_and_descriptions[1::2]
    return [column(name, said, wide=True) for name, said in zip(names, descriptions, strict=True)]


_EVENT_COLUMNS = [
    column("Last Seen", "How long ago it happened last."),
    column("Type", "Normal or Warning."),
    column("Reason", "What happened, in a word."),
    column("Object", "To what it happened."),
    *_wide("Subobject", "Which part of that.", "Source", "Who says so."),
    column("Message", "What happened, in a sentence."),
    *_wide("First Seen", "How long ago it happened first.", "Count", "How often it happened."),
    column("Name", "The event's name.", wide=True, format="name"),
]
_CONFIG_DATA = ("data", "binaryData")


PRINTERS: dict[tuple[str, str], tuple[list[Column], Cells]] = {
    ("", "pods"): (POD_COLUMNS, pod_cells),
    ("", "nodes"): (
        [
            NAME,
            column("Status", "Whether the node is ready, and whether pods may be put there."),
            column("Roles", "What the node is for, as its labels say."),
            AGE,
            column("Version", "Its kubelet's version."),
            *_wide("Internal-IP", "Its address in the cluster.", "External-IP", "Its address outside."),
            *_wide("OS-Image", "Its operating system.", "Kernel-Version", "Its kernel and architecture."),
            *_wide("Container-Runtime", "What runs its containers."),
        ],
        _node,
    ),
    ("", "namespaces"): (
        [NAME, column("Status", "Whether it is in use or being deleted."), AGE],
        lambda item, now: [_name(item), (item.get("status") or {}).get("phase") or "", age(item, now)],
    ),
    ("", "configmaps"): (
        [NAME, column("Data", "How many entries it has."), AGE],
        lambda item, now: [_name(item), sum(len(item.get(each) or ()) for each in _CONFIG_DATA), age(item, now)],
    ),
    ("", "secrets"): (
        [NAME, column("Type", "Which kind of secret it is."), column("Data", "How many entries it has."), AGE],
        lambda item, now: [_name(item), item.get("type") or "", len(item.get("data") or ()), age(item, now)],
    ),
    ("", "serviceaccounts"): ([NAME, AGE], lambda item, now: [_name(item), age(item, now)]),
    ("", "services"): (
        [
            NAME,
            column("Type", "How the service is offered."),
            column("Cluster-IP", "Its address in the cluster."),
            column("External-IP", "Its addresses outside."),
            column("Port(s)", "Its ports."),
            AGE,
            *_wide("Selector", "The pods behind it."),
        ],
        _service,
    ),
    ("", "events"): (_EVENT_COLUMNS, _event),
    ("events.k8s.io", "events"): (_EVENT_COLUMNS, _event),
    ("batch", "jobs"): (
        [
            NAME,
            column("Status", "How the job is."),
            column("Completions", "Pods that ended well, of those wanted."),
            column("Duration", "How long it took, or has taken so far."),
            AGE,
            *_wide("Containers", "Names of its pods' containers.", "Images", "Their images."),
            *_wide("Selector", "Which pods are its own."),
        ],
        _job,
    ),
    ("apps", "daemonsets"): (
        [
            NAME,
            column("Desired", "How many nodes are to have a pod.", of_type="integer"),
            column("Current", "How many nodes have one.", of_type="integer"),
            column("Ready", "How many of the pods are ready.", of_type="integer"),
            column("Up-to-date", "How many are as the template has them.", of_type="integer"),
            column("Available", "How many are available.", of_type="integer"),
            column("Node Selector", "Labels of the nodes that are to have a pod."),
            AGE,
            *_wide("Containers", "Names of its pods' containers.", "Images", "Their images."),
            *_wide("Selector", "Which pods are its own."),
        ],
        _daemon_set,
    ),
    ("coordination.k8s.io", "leases"): (
        [NAME, column("Holder", "Who holds it."), AGE],
        lambda item, now: [_name(item), (item.get("spec") or {}).get("holderIdentity") or "", age(item, now)],
    ),
    ("scheduling.k8s.io", "priorityclasses"): (
        [
            NAME,
            column("Value", "The priority of its pods.", of_type="integer"),
            column("Global-Default", "Whether pods without a class have this one.", of_type="boolean"),
            AGE,
            column("PreemptionPolicy", "Whether its pods evict others."),
        ],
        _priority_class,
    ),
    ("policy", "poddisruptionbudgets"): (
        [
            NAME,
            column("Min Available", "How many pods must be there."),
            column("Max Unavailable", "How many pods may be missing."),
            column("Allowed Disruptions", "How many pods may be evicted now.", of_type="integer"),
            AGE,
        ],
        _budget,
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): (
        [
            NAME,
            column("Mutations", "How many changes it makes.", of_type="integer"),
            column("ParamKind", "The kind of its parameters."),
            AGE,
        ],
        lambda item, now: [_name(item), len(item["spec"]["mutations"]), _UNSET, age(item, now)],
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): (
        [NAME, column("PolicyName", "The policy in force."), column("ParamRef", "Its parameters."), AGE],
        lambda item, now: [_name(item), item["spec"]["policyName"], _UNSET, age(item, now)],
    ),
}
"""Columns and cells by group and plural."""

BARE: tuple[list[Column], Cells] = (
    [NAME, column("Created At", "When the object was created.", of_type="date")],
    lambda item, now: [_name(item), item["metadata"].get("creationTimestamp") or ""],
)
"""For built-in kinds without columns of their own, such as CustomResourceDefinitions."""
