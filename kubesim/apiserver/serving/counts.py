"""Counts: how many requests of each sort were answered, for kube-apiserver's /metrics."""

from __future__ import annotations

from collections import Counter

from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.wire import Request

_VERBS = {"POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE", "GET": "GET", "HEAD": "GET"}


class Counts:
    def __init__(self) -> None:
        self._requests: Counter[tuple[str, ...]] = Counter()

    def note(self, request: Request, target: Target | None, code: int, *, watch: bool = False) -> None:
        if target is None:
            self._requests[str(code), "", "", "", "", "", _VERBS.get(request.method, "OTHER"), ""] += 1
            return
        verb = _VERBS.get(request.method, "OTHER")
        scope = (
            "resource" if target.name or request.method == "POST" else "namespace" if target.namespace else "cluster"
        )
        if not target.name:
            verb = {"GET": "WATCH" if watch else "LIST", "DELETE": "DELETECOLLECTION"}.get(verb, verb)
        elif verb == "PATCH" and request.content_type.startswith("application/apply-patch"):
            verb = "APPLY"
        kind = target.kind
        dry = "All" if request.dry_run else ""
        # An unknown subresource in a path must not create new counters.
        known = not target.subresource or target.subresource in (*kind.subresources, "finalize")
        sub = target.subresource if known else "other"
        self._requests[str(code), dry, kind.group, kind.plural, scope, sub, verb, kind.version] += 1

    def text(self) -> bytes:
        """The counters in the format of Prometheus."""
        names = ("code", "dry_run", "group", "resource", "scope", "subresource", "verb", "version")
        lines = [
            "# HELP apiserver_request_total How many requests of each sort have been answered.",
            "# TYPE apiserver_request_total counter",
        ]
        for values, count in sorted(self._requests.items()):
            labels = ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
            labels = labels.replace(",dry_run=", ',component="apiserver",dry_run=')
            lines.append(f"apiserver_request_total{{{labels}}} {count}")
        return ("\n".join(lines) + "\n").encode()
