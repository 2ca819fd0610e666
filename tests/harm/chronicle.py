"""A chronicle: what an API server's watches and audit log would tell of a small cluster, told to a witness.

Each step is one request: first its effects, as the watches tell them, then its entry in the audit log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from loadtests.harm.harms import Harm
from loadtests.harm.witness import SCHEDULER, SERVICE, HarmWitness

Json = dict[str, Any]

EPOCH = 1_780_000_000.0
USER, JOBS, KUBELET = "admin", "system:serviceaccount:kube-system:job-controller", "kwok"


def stamp(at: float, *, micro: bool = False) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def attempt(uid: str, *others: str, needed: int, size: int | None = None, name: str = "a1") -> str:
    """The mark that a Binding writes on the pod of this UID."""
    whole = 1 + len(others) if size is None else size
    return json.dumps({"pod": uid, "attempt": name, "needed": needed, "size": whole, "with": others, "at": 1.0})


class Chronicle:
    def __init__(self, **about: Any) -> None:
        self.witness = HarmWitness(**about)
        self.now = EPOCH
        self.pods: dict[str, Json] = {}
        self._asked = 0
        for name in ("n0", "n1", "n2", "n3"):
            self.node(name)

    # -- time and findings ---------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def found(self, *, after: float = 1000.0) -> list[str]:
        """The rules that were broken, once so much time has passed."""
        return [each.rule for each in self.harms(after=after)]

    def harms(self, *, after: float = 1000.0) -> list[Harm]:
        self.wait(after)
        self.witness.finish(self.now)
        return self.witness.violations()

    # -- what the API server tells -------------------------------------------------------------------------------

    def tell(self, kind: str, obj: Json) -> None:
        self.witness.watched({"type": kind, "object": json.loads(json.dumps(obj))}, self.now)

    def audit(
        self,
        verb: str,
        name: str,
        user: str,
        *,
        subresource: str = "",
        code: int = 200,
        sent: Json | None = None,
        resource: str = "pods",
        stage: str = "ResponseComplete",
        number: int | None = None,
        received: float | None = None,
    ) -> None:
        self._asked += 1
        event: Json = {
            "stage": stage,
            "auditID": str(self._asked if number is None else number),
            "verb": verb,
            "user": {"username": user},
            "objectRef": {"resource": resource, "namespace": "default", "name": name, "subresource": subresource},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": stamp(self.now if received is None else received, micro=True),
            "stageTimestamp": stamp(self.now, micro=True),
        }
        if sent is not None:
            event["requestObject"] = sent
        self.witness.audited(event)

    def node(self, name: str, **labels: str) -> None:
        status = {"allocatable": {"cpu": "8"}}
        self.tell("MODIFIED", {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status})

    def node_is_lost(self, name: str) -> None:
        self.tell("DELETED", {"kind": "Node", "metadata": {"name": name}})

    def group(self, name: str, members: int, kind: str = "MODIFIED") -> None:
        metadata = {"name": name, "namespace": "default"}
        self.tell(kind, {"kind": "PodGroup", "metadata": metadata, "spec": {"minMember": members}})

    def budget(self, name: str, allowed: int, labels: Mapping[str, str]) -> None:
        metadata = {"name": name, "namespace": "default"}
        spec, status = {"selector": {"matchLabels": dict(labels)}}, {"disruptionsAllowed": allowed}
        self.tell("MODIFIED", {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec, "status": status})

    def daemon_set(self, name: str, **node_selector: str) -> None:
        """A DaemonSet that selects all pods, and wants one on each node of these labels."""
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        spec = {"selector": {}, "template": {"spec": {"nodeSelector": node_selector}}}
        self.tell("MODIFIED", {"kind": "DaemonSet", "metadata": metadata, "spec": spec})

    # -- pods ----------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        gang: str | None = None,
        quorum: int | None = None,
        group: str | None = None,
        scheduler: str = "escher",
        priority: int = 0,
        never_preempts: bool = False,
        owner: tuple[str, ...] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        uid: str = "",
    ) -> str:
        """The pod is there and waits. Its UID, which is `uid-NAME` unless told otherwise; so is that of its `owner`, of
        kind and name."""
        made: Json = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid or f"uid-{name}",
                "creationTimestamp": stamp(self.now),
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": {"schedulerName": scheduler, "priority": priority},
            "status": {"phase": "Pending"},
        }
        metadata = made["metadata"]
        if gang is not None:
            metadata["labels"]["escher.dev/gang"] = gang
            metadata["annotations"]["escher.dev/gang-min-member"] = str(quorum)
        if group is not None:
            metadata["labels"]["scheduling.x-k8s.io/pod-group"] = group
        if owner is not None:
            of = {"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[-1]}", "controller": True}
            metadata["ownerReferences"] = [of]
        if never_preempts:
            made["spec"]["preemptionPolicy"] = "Never"
        self.pods[name] = made
        self.tell("ADDED", made)
        return str(metadata["uid"])

    def bind(
        self, name: str, node: str = "n0", *, mark: str | None = None, by: str = SERVICE, runs: bool = True
    ) -> None:
        pod = self.pods[name]
        pod["spec"]["nodeName"] = node
        if mark is not None:
            pod["metadata"]["annotations"]["escher.dev/attempt"] = mark
        self.tell("MODIFIED", pod)
        sent = {"metadata": {"name": name, "uid": pod["metadata"]["uid"]}}
        self.audit("create", name, by, subresource="binding", code=201, sent=sent)
        if runs:
            self.run(name)

    def refuse_binding(self, name: str, code: int) -> None:
        sent = {"metadata": {"name": name, "uid": self.pods[name]["metadata"]["uid"]}}
        self.audit("create", name, SERVICE, subresource="binding", code=code, sent=sent)

    def annotate(self, name: str, key: str, value: str) -> None:
        self.pods[name]["metadata"]["annotations"][key] = value
        self.tell("MODIFIED", self.pods[name])

    def run(self, name: str) -> None:
        self._phase(name, "Running", ready=True)

    def succeed(self, name: str) -> None:
        self._phase(name, "Succeeded", ready=False)

    def _phase(self, name: str, phase: str, *, ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.pods[name]["status"] = {"phase": phase, "conditions": conditions}
        self.tell("MODIFIED", self.pods[name])

    def running(self, *names: str, on: str = "n0", **about: Any) -> None:
        for name in names:
            self.create(name, **about)
            self.bind(name, on)

    # -- ends ----------------------------------------------------------------------------------------------------

    def goes(self, name: str) -> None:
        """The pod ends and is gone, as the watches tell it."""
        pod = self.pods.pop(name)
        pod["metadata"]["deletionTimestamp"] = stamp(self.now + 30)
        self.tell("MODIFIED", pod)
        pod["status"] = {"phase": "Failed", "conditions": pod.get("status", {}).get("conditions", [])}
        self.tell("DELETED", pod)

    def vanish(self, name: str) -> None:
        """The pod is gone at once."""
        self.tell("DELETED", self.pods.pop(name))

    def delete(self, name: str, by: str = USER) -> None:
        self.goes(name)
        self.audit("delete", name, by)

    def evict(self, name: str, by: str = SERVICE, *, code: int = 201) -> None:
        if code == 201:
            self.goes(name)
        self.audit("create", name, by, subresource="eviction", code=code)

    def state(self, name: str, reason: str, note: str, *, by: str = SERVICE) -> None:
        """The Event that the service writes about the pod."""
        sent = {"reason": reason, "note": note, "regarding": {"kind": "Pod", "uid": f"uid-{name}"}}
        self.audit("create", f"{name}.{self._asked}", by, resource="events", code=201, sent=sent)

    def evict_part(self, name: str) -> None:
        self.state(name, "GangEvicted", "gang default/g: the rest of 4 were not bound in time; this one is evicted")
        self.evict(name)

    def preempt(self, name: str, of: str = "gang default/top") -> None:
        self.state(name, "PreemptedByGang", f"evicted for {of} of higher priority")
        self.evict(name)

    def follow(self, name: str, of: str) -> None:
        """The rest of a gang follows those whom kube-scheduler has evicted for a pod."""
        self.state(name, "GangPreempted", f"evicted with its gang default/g, for {of} of higher priority")
        self.evict(name)

    def nominate(self, name: str, node: str) -> None:
        """kube-scheduler keeps room for the pod there, since others leave for it."""
        self.pods[name]["status"]["nominatedNodeName"] = node
        self.tell("MODIFIED", self.pods[name])

    def preempt_by_scheduler(self, name: str, profile: str = "escher") -> None:
        why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        why["message"] = f"{profile}: preempting to accommodate a higher priority pod"
        self.pods[name].setdefault("status", {}).setdefault("conditions", []).append(why)
        self.tell("MODIFIED", self.pods[name])
        self.delete(name, SCHEDULER)
