"""Drawing: draws any request that a client might send, right or wrong, from paths and shapes."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NAMES = ("a", "b", "c", "d", "e", "f")
NAMESPACES = ("default", "default", "one", "two")
_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 1.5, 2**31, 2**63, 10**30, "", "x", "a b", "A", "-1", "1e999", "50%", "half", "0x1", "\u0000",
    "é" * 70, "2026-01-01T00:00:00Z", "yesterday", [], {}, [None], [{}], [[]], {"": None}, {"a": {}}, {"a": "b"},
    [{"name": "a"}, {"name": "a"}], [{"type": "Ready"}], [{"status": "True"}],
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def watches(self) -> bool:
        return self.method == "GET" and self.query.get("watch") == "1"


@dataclass(frozen=True)
class _Collection:
    root: str
    plural: str
    namespaced: bool
    body: Json
    subresources: tuple[str, ...] = ()

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.root}{where}/{self.plural}" + "".join(f"/{part}" for part in (name, subresource) if part)


_CONTAINER: Json = {
    "name": "main",
    "image": "none",
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"escher.dev/a": "1", "cpu": "1"}},
    "ports": [{"containerPort": 80, "hostPort": 8080, "name": "web", "protocol": "TCP", "hostIP": "127.0.0.1"}],
    "env": [{"name": "A", "value": "b"}],
    "readinessProbe": {"exec": {"command": ["true"]}},
}
_TERM: Json = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["rev"]}
_SPREAD: Json = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "minDomains": 2,
    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]},
    "nodeTaintsPolicy": "Honor",
}
_NODE_TERM: Json = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z"]}]}
_POD: Json = {
    "schedulerName": "escher-resources",
    "containers": [_CONTAINER],
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "away", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [_SPREAD],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": _NODE_TERM}],
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "podAffinityTerm": _TERM}]},
    },
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}}],
    "schedulingGates": [{"name": "example.com/gate"}],
    "priorityClassName": "system-cluster-critical",
    "terminationGracePeriodSeconds": 5,
    "activeDeadlineSeconds": 100,
    "restartPolicy": "Never",
}
_CONDITION: Json = {"type": "Ready", "status": "True", "reason": "A", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_NODE_STATUS: Json = {
    "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "escher.dev/a": "4"},
    "conditions": [_CONDITION],
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
}
_REFERENCE: Json = {"kind": "Pod", "namespace": "default", "name": "a", "apiVersion": "v1"}
_SCHEMA: Json = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}}}},
    "x-kubernetes-validations": [{"rule": "!has(self.spec) || self.spec.size < 9", "message": "too large"}],
}
COLLECTIONS = (
    _Collection("/api/v1", "pods", True, {"spec": _POD}, ("status", "binding", "eviction", "log", "made-up")),
    _Collection("/api/v1", "pods", True, {"spec": {"containers": [_CONTAINER]}}, ("status", "binding", "eviction")),
    _Collection("/api/v1", "nodes", False, {"spec": {"taints": [{"key": "away", "effect": "NoSchedule"}]},
                                            "status": _NODE_STATUS}, ("status",)),
    _Collection("/api/v1", "namespaces", False, {}, ("status", "finalize")),
    _Collection("/api/v1", "configmaps", True, {"data": {"a": "b"}}),
    _Collection("/api/v1", "secrets", True, {"stringData": {"a": "b"}}),
    _Collection("/api/v1", "services", True, {"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}}),
    _Collection("/api/v1", "events", True, {"involvedObject": _REFERENCE, "reason": "A", "message": "b", "count": 1}),
    _Collection("/apis/events.k8s.io/v1", "events", True, {
        "regarding": _REFERENCE, "reason": "A", "note": "b", "type": "Normal", "action": "C",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a/b", "reportingInstance": "c"}),
    _Collection("/apis/batch/v1", "jobs", True, {"spec": {
        "parallelism": 2, "completions": 2, "backoffLimit": 1, "ttlSecondsAfterFinished": 9, "template": {
            "metadata": {"annotations": {"escher.dev/run-seconds": "2"}}, "spec": {
                "restartPolicy": "Never", "schedulerName": "escher-resources", "containers": [_CONTAINER],
            }}}}, ("status",)),
    _Collection("/apis/policy/v1", "poddisruptionbudgets", True, {
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "a"}}}}, ("status",)),
    _Collection("/apis/scheduling.k8s.io/v1", "priorityclasses", False, {"value": 10, "description": "a"}),
    _Collection("/apis/coordination.k8s.io/v1", "leases", True, {
        "spec": {"holderIdentity": "a", "leaseTransitions": 1}}),
    _Collection("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False, {"spec": {
        "group": "any.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        }]}}, ("status",)),
    _Collection("/apis/any.dev/v1", "things", True, {"apiVersion": "any.dev/v1", "kind": "Thing", "spec": {"size": 3}}),
)  # fmt: skip
_PLACES = (
    "/", "/api", "/apis", "/api/v1", "/apis/batch/v1", "/openapi/v2", "/openapi/v3", "/version", "/healthz",
    "/metrics", "/apis/none", "/api/v1/nothing", "/api/v1/namespaces/default", "/api/v1/watch/pods", "//",
)  # fmt: skip
_POINTERS = ("/metadata/labels", "/spec", "/status/conditions/0", "/metadata/name", "/a~2", "", "/-")


class Drawing:
    """Draws requests; `rng` decides everything."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.versions = ["1"]
        """Resource versions that were seen, for requests with a version."""
        self.tokens = [""]

    def asked(self) -> Asked:
        draw = self._rng.random()
        of = self._rng.choice(COLLECTIONS)
        if draw < 0.03:
            return Asked(self._rng.choice(["GET", "HEAD", "POST", "DELETE", "PUT", "TRACE"]), self._rng.choice(_PLACES))
        if draw < 0.38:
            return self._created(of)
        if draw < 0.60:
            return self._read(of)
        if draw < 0.78:
            return self._patched(of)
        if draw < 0.88:
            return self._replaced(of)
        return self._deleted(of)

    # -- requests ------------------------------------------------------------------------------------------------

    def _created(self, of: _Collection) -> Asked:
        name, namespace = self._rng.choice(NAMES), self._rng.choice(NAMESPACES)
        if of.plural == "namespaces":
            name = self._rng.choice(["one", "two", "one", "two", "a"])
        if of.plural == "customresourcedefinitions":
            name = "things.any.dev"
        sub = self._rng.choice(of.subresources) if of.subresources and self._rng.random() < 0.15 else ""
        if sub == "binding":
            body: Json = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self._rng.choice(NAMES)}}
        elif sub == "eviction":
            body = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}}
        else:
            body = self._object(of, name)
        return self._with_body("POST", of.path(namespace, name if sub else "", sub), body)

    def _replaced(self, of: _Collection) -> Asked:
        name, namespace = self._rng.choice(NAMES), self._rng.choice(NAMESPACES)
        body = self._object(of, name)
        if self._rng.random() < 0.5:
            body["metadata"]["resourceVersion"] = self._rng.choice(self.versions)
        return self._with_body("PUT", of.path(namespace, name, self._sub(of)), body)

    def _patched(self, of: _Collection) -> Asked:
        media = self._rng.choice(PATCHES)
        path = of.path(self._rng.choice(NAMESPACES), self._rng.choice(NAMES), self._sub(of))
        status = {"status": {"conditions": [_CONDITION], "phase": "Running", "disruptionsAllowed": 1}}
        meta = {"metadata": {"labels": {"app": "a"}, "finalizers": self._rng.choice([None, None, None, ["a.dev/b"]])}}
        if media == PATCHES[0]:
            pointer = self._rng.choice(
                ["/metadata/labels", "/spec", "/status/conditions/0", "/metadata/name", "/a~2", "", "/-"]
            )
            operation = self._rng.choice(["add", "replace", "remove", "test", "copy", "move", "odd"])
            patch: Any = [{"op": operation, "path": pointer, "value": self._rng.choice(_ODD), "from": "/metadata"}]
        else:
            patch = self._mutated(self._rng.choice([status, meta, of.body, {"spec": None}, {"metadata": None}]))
        query = {"fieldManager": "me"} if self._rng.random() < 0.8 else {}
        return self._with_body("PATCH", path, patch, media, query)

    def _deleted(self, of: _Collection) -> Asked:
        name = self._rng.choice(NAMES) if self._rng.random() < 0.9 else ""
        path = of.path(self._rng.choice(NAMESPACES), name)
        if of.plural == "namespaces" and name:
            path = of.path("", self._rng.choice(["one", "two", name]))
        options = {"gracePeriodSeconds": self._rng.choice([0, 0, 0, 1, 30, -1]), "propagationPolicy": "Background"}
        if self._rng.random() < 0.5:
            return Asked("DELETE", path, {"gracePeriodSeconds": "0"})
        return self._with_body("DELETE", path, options)

    def _read(self, of: _Collection) -> Asked:
        name = self._rng.choice(NAMES) if self._rng.random() < 0.3 else ""
        path = of.path(self._rng.choice([*NAMESPACES, ""]), name, self._sub(of) if name else "")
        headers = {"accept": self._rng.choice([JSON] * 6 + [TABLE] * 6 + ["text/html", "", PROTOBUF])}
        query: dict[str, str] = {}
        choices = {
            "limit": ["1", "2", "500", "-1", "x", str(10**30)],
            "resourceVersion": ["", "0", *self.versions[-3:], "x", "-1", str(10**18)],
            "resourceVersionMatch": ["Exact", "NotOlderThan", "Odd"],
            "continue": [*self.tokens[-3:], "zzz"],
            "labelSelector": ["app=a", "app in (a,b)", "!app", "==", "a notin ()", "a,,b", "app!=a"],
            "fieldSelector": ["metadata.name=a", "spec.nodeName=a", "status.phase!=Running", "odd=1", "="],
            "watch": ["1"],
            "timeoutSeconds": ["1", "0", "-1", "x"],
            "allowWatchBookmarks": ["true"],
            "sendInitialEvents": ["true", "false"],
            "includeObject": ["Object", "None", "Odd"],
        }
        for key, values in choices.items():
            if self._rng.random() < 0.07:
                query[key] = self._rng.choice(values)
        return Asked("GET", path, query, headers)

    # -- bodies --------------------------------------------------------------------------------------------------

    def _sub(self, of: _Collection) -> str:
        return self._rng.choice(of.subresources) if of.subresources and self._rng.random() < 0.3 else ""

    def _object(self, of: _Collection, name: str) -> Json:
        labels = {"app": self._rng.choice("ab"), "rev": "1"}
        body: Json = {"metadata": {"name": name, "labels": labels}, **copy.deepcopy(of.body)}
        if self._rng.random() < 0.05:
            body["metadata"] = {"generateName": f"{name}-"} if of.plural == "configmaps" else {"generateName": None}
        return body

    def _with_body(
        self, method: str, path: str, body: Any, media: str = JSON, query: dict[str, str] | None = None
    ) -> Asked:
        asked = dict(query or {})
        if self._rng.random() < 0.1:
            asked["dryRun"] = self._rng.choice(["All", "All", "None"])
        if self._rng.random() < 0.1:
            asked["fieldValidation"] = self._rng.choice(["Strict", "Warn", "Odd"])
        if self._rng.random() < 0.3:
            body = self._mutated(body)
        content = json.dumps(body).encode()
        draw = self._rng.random()
        if draw < 0.02:
            content = content[: self._rng.randrange(len(content) + 1)]
        elif draw < 0.03:
            opening = self._rng.choice([b'{"a":', b"["])
            content = opening * self._rng.choice([50, 150, 250, 5000])
        elif draw < 0.04:
            content = self._rng.randbytes(self._rng.randrange(40))
        elif draw < 0.05:
            media = self._rng.choice([YAML, PROTOBUF, "text/plain", ""])
        return Asked(method, path, asked, {"content-type": media, "accept": JSON}, content)

    def _mutated(self, body: Any) -> Any:
        """Returns a copy with a few values replaced by odd ones, or removed."""
        body = copy.deepcopy(body)
        for _ in range(self._rng.choice([1, 1, 1, 2, 5])):
            holder, key = self._place(body)
            if holder is None:
                return copy.deepcopy(self._rng.choice(_ODD))
            draw = self._rng.random()
            if draw < 0.15:
                del holder[key]
            elif draw < 0.25 and isinstance(holder, dict):
                holder[self._rng.choice(["x", "", "spec", "a/b/c", "$patch"])] = copy.deepcopy(self._rng.choice(_ODD))
            else:
                holder[key] = copy.deepcopy(self._rng.choice(_ODD))
        return body

    def _place(self, body: Any) -> tuple[Any, Any]:
        holder, key, here = None, None, body
        while isinstance(here, dict | list) and here and (holder is None or self._rng.random() < 0.8):
            holder = here
            key = self._rng.choice(list(here)) if isinstance(here, dict) else self._rng.randrange(len(here))
            here = here[key]
        return holder, key
