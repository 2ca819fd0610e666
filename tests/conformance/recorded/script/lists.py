"""Lists of pods: pages, versions, selectors, forms; and the deletion of all of them."""

from __future__ import annotations

from tests.conformance.recorded.asks import Ask, delete, get
from tests.conformance.recorded.script.objects import MANY_AS_METADATA, ONE_AS_METADATA, PODS

PAGES: list[Ask] = [
    get(f"{PODS}?limit=2", id="page"),
    get(f"{PODS}?limit=2&continue={{lists/page:metadata.continue}}"),
    get(f"{PODS}?limit=2&resourceVersion=5&continue={{lists/page:metadata.continue}}"),
    get(f"{PODS}?continue=abc", id="bad-token"),
    get(f"{PODS}?limit=1&labelSelector=x"),
    get(f"{PODS}?resourceVersion=0&limit=1"),
    get(f"{PODS}?limit=1&resourceVersionMatch=Exact&resourceVersion={{lists/page:metadata.resourceVersion}}"),
    get(f"{PODS}?resourceVersion=99999999", id="version-to-come"),
    get(f"{PODS}?resourceVersion=abc"),
    get(f"{PODS}?resourceVersionMatch=Exact"),
    get(f"{PODS}?resourceVersionMatch=Exact&resourceVersion=0"),
    get(f"{PODS}?resourceVersionMatch=Foo&resourceVersion=1"),
    get(f"{PODS}?limit=abc"),
]

SELECTORS: list[Ask] = [
    get(f"{PODS}?fieldSelector=spec.foo=1"),
    get(f"{PODS}?fieldSelector=foo"),
    get(f"{PODS}?labelSelector=a b c"),
    get(f"{PODS}?labelSelector=a===b"),
    get(f"{PODS}?labelSelector=a in b"),
    get(f"{PODS}?labelSelector=!l,x notin (a,b)&limit=1"),
    get(f"{PODS}?fieldSelector=spec.nodeName=,status.phase!=Running&limit=1"),
    get("/api/v1/nodes?fieldSelector=spec.nodeName=1"),
    get("/api/v1/configmaps?fieldSelector=data=1"),
    get("/api/v1/namespaces?fieldSelector=metadata.namespace=1"),
    get(f"{PODS}?labelSelector=a=b c"),
    get(f"{PODS}?labelSelector=-a"),
    get(f"{PODS}?labelSelector=a=-"),
    get(f"{PODS}?labelSelector=a,"),
    get(f"{PODS}?labelSelector=a in (b"),
]

FORMS: list[Ask] = [
    get(f"{PODS}?limit=1", accept=MANY_AS_METADATA),
    get(f"{PODS}/p2", accept=ONE_AS_METADATA),
    get(f"{PODS}/p2", accept="text/html"),
    get(f"{PODS}/p2", accept="application/vnd.kubernetes.protobuf,application/json", id="protobuf"),
]

ALL: list[Ask] = [
    delete(f"{PODS}?labelSelector=none"),
    delete(PODS, id="all"),
    get(PODS),
    get("/api/v1/namespaces/nope/pods"),
]

ASKS = [*PAGES, *SELECTORS, *FORMS, *ALL]
