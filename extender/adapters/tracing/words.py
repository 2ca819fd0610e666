"""Words: the names of span attributes; `escher.*` where OpenTelemetry's conventions have none.

docs/operations.md lists all of them."""

from __future__ import annotations

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
URL_SCHEME = "url.scheme"
URL_TEMPLATE = "url.template"
CLIENT_ADDRESS = "client.address"
ERROR_TYPE = "error.type"

NAMESPACE = "k8s.namespace.name"
NODE = "k8s.node.name"
POD = "k8s.pod.name"
POD_UID = "k8s.pod.uid"

OBJECT = "escher.object"
"""Name of the written object, if it is neither a pod nor a node."""
VERB = "escher.verb"
GANG = "escher.gang"
OFFERED = "escher.nodes.offered"
PASSED = "escher.nodes.passed"
OUTCOME = "escher.outcome"
REASON = "escher.reason"
MEMBERS = "escher.gang.members"
QUORUM = "escher.gang.quorum"
SECONDS = "escher.gang.seconds"
LINK = "escher.link"
"""Why a span is linked to another."""
