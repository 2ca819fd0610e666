"""API server: Kubernetes' REST API without sockets; a request gets an answer or a watch at once.

It handles paths, verbs and authentication. The modules beside it handle lists, writes, watches and kinds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import structlog

from kubesim.apiserver.machinery import discovery, patches
from kubesim.apiserver.machinery.failures import (
    Failure,
    bad_request,
    invalid,
    no_method,
    no_resource,
    not_found,
    not_supported,
    server_error,
    unauthorized,
    unsupported,
)
from kubesim.apiserver.machinery.metadata import new_uid
from kubesim.apiserver.machinery.served import Served, Target
from kubesim.apiserver.machinery.store import Backup, Store
from kubesim.apiserver.machinery.wire import JSON, Answer, Request
from kubesim.apiserver.representation import nesting, openapi
from kubesim.apiserver.representation.forms import Form
from kubesim.apiserver.schemas.definitions import Definitions
from kubesim.apiserver.serving import absent
from kubesim.apiserver.serving.audit import Audit
from kubesim.apiserver.serving.counts import Counts
from kubesim.apiserver.serving.faults import Faults
from kubesim.apiserver.storage import binding, bodies, deletion, reads, reviews
from kubesim.apiserver.storage.watches import Watch, Watches
from kubesim.apiserver.storage.writes import Writes
from kubesim.apiserver.validation import simple
from kubesim.apiserver.validation.admission import Admission
from kubesim.clock import Clock
from kubesim.heeding import unheeded
from kubesim.kinds import BUILT_IN, JOB, NAMESPACE, POD, PRIORITY_CLASS, Json, Kind

__all__ = ["Answer", "ApiServer", "Request", "Watch"]

ADMIN, ANYBODY = "admin", "system:anonymous"
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_log = structlog.get_logger(__name__)
_HEALTH = ("/healthz", "/livez", "/readyz")
_TEXT = {"content-type": "text/plain; charset=utf-8"}
_encode = msgspec.json.Encoder().encode
_SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class ApiServer:
    """The API server. `token`: the bearer token of the admin; None admits every request.

    `tokens`: further accepted tokens, each with its user name. The user goes to `audit` and to reviews, and has no
    other effect. `allows`: decides reviews about what others may do; None allows everything.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        kinds: Iterable[Kind] = BUILT_IN,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        allows: reviews.Allows | None = None,
    ) -> None:
        self.store = Store(now=clock.now)
        self.served = Served((*kinds, *reviews.KINDS))
        self.audit = Audit(clock)
        self.faults = Faults()
        self._users = None if token is None else {f"Bearer {key}": of for key, of in (tokens or {}).items()}
        if self._users is not None:
            self._users[f"Bearer {token}"] = ADMIN
        self._allows = allows
        self._clock = clock
        self._rng = rng
        self._admission = Admission(self.store, clock, rng)
        self._writes = Writes(self.store, self._admission)
        self._watches = Watches(self.store, rng)
        self._definitions = Definitions(self.store, self.served, self._watches.end)
        self._counts = Counts()
        self._begin()

    def handle(self, request: Request) -> Answer | Watch:
        """The answer; every change that the request makes is complete when this returns."""
        target: Target | None = None
        user = ANYBODY
        try:
            user = self._user(request)
            _check_dry_run(request)
            target = self.served.target(request.path)
            answer = self._general(request) if target is None else self._resource(request, target, user)
        except Failure as failure:
            answer = _failed(failure)
        except Exception:
            _log.exception(
                "a request has failed on an error of the API server", method=request.method, path=request.path
            )
            answer = _failed(server_error("the embedded API server has failed on this request"))
        watching = isinstance(answer, Watch)
        status = 200 if isinstance(answer, Watch) else answer.status
        self._counts.note(request, target, status, watch=watching)
        self.audit.note(request, target, user, status)
        return answer

    def note_refusal(self, request: Request, status: int) -> None:
        """Records in the audit a request that an injected fault refused, like any refusal."""
        self.audit.note(request, self.served.target(request.path), self._user(request), status)

    @property
    def open_watches(self) -> int:
        return self._watches.count()

    def restore(self, backup: Backup, version: int | None = None) -> None:
        """Restores etcd from the backup and ends all watches; see `Store.restore`."""
        self._watches.end_all()
        self.store.restore(backup, version)

    def _user(self, request: Request) -> str:
        """The user of the request. Raises Failure (401)."""
        if request.user:
            return request.user
        if self._users is None:
            return ANYBODY
        known = self._users.get(request.headers.get("authorization", ""))
        if known is None:
            raise unauthorized()
        return known

    def _begin(self) -> None:
        """Creates the namespaces and priority classes that kube-apiserver creates at its start."""
        for name in SYSTEM_NAMESPACES:
            self._writes.create(Target(NAMESPACE, "", name), {"metadata": {"name": name}})
        for each in simple.system_priority_classes():
            own = {"uid": new_uid(self._rng), "creationTimestamp": self._clock.stamp()}
            self.store.create(PRIORITY_CLASS, {**each, "metadata": {**each["metadata"], **own}})

    # -- requests that are not about objects ---------------------------------------------------------------------------

    def _general(self, request: Request) -> Answer:
        path = request.path.rstrip("/") or "/"
        if path in _HEALTH or path.startswith(tuple(f"{each}/" for each in _HEALTH)):
            return Answer(200, b"ok", _TEXT)
        missing = absent.of_path(path)
        if missing is not None:
            raise missing
        if request.method not in ("GET", "HEAD"):
            if self.served.has_version(path):
                raise no_resource()
            return Answer(404, b"404 page not found\n", _TEXT)
        if path == "/metrics":
            return Answer(200, self._counts.text(), {"content-type": "text/plain; version=0.0.4; charset=utf-8"})
        if path.startswith("/openapi/"):
            document = openapi.answer(self.served.all(), path, request.accept)
            if document is not None:
                return Answer(200, document[0], {"content-type": document[1]})
        said = discovery.answer((*self.served.all(), *absent.KINDS), path, request.accept)
        if said is not None:
            return Answer(200, _encode(said), {"content-type": discovery.content_type(path, request.accept)})
        if self.served.has_version(path):
            raise no_resource()
        return Answer(404, b"404 page not found\n", _TEXT)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _resource(self, request: Request, target: Target, user: str) -> Answer | Watch:
        kind, method = target.kind, request.method
        if not _has(kind, target.subresource):
            missing = absent.of_subresource(kind, target.subresource)
            if missing is not None:
                raise missing
            raise not_found(kind, target.name) if kind.is_custom else no_resource()
        if target.subresource in ("binding", "eviction"):
            return self._assignment(request, target)
        if kind.verbs == ("create",):
            return self._reviewed(request, target, user)
        if not target.name:
            return self._collection(request, target)
        match method:
            case "GET" | "HEAD":
                return Answer(200, self._form(request, kind).one(reads.get(self.store, target)))
            case "PUT":
                body = bodies.read_object(request, kind, self.served.all())
                if target.subresource == "finalize":
                    return self._finalized(request, target, body)
                obj, created = self._writes.replace(target, body, dry_run=request.dry_run)
                return self._written(request, kind, obj, 201 if created else 200)
            case "PATCH":
                return self._patched(request, target)
            case "DELETE" if not target.subresource:
                return self._deleted(request, target)
        raise not_supported(kind, method.lower()) if kind.is_custom else no_method()

    def _collection(self, request: Request, target: Target) -> Answer | Watch:
        kind = target.kind
        match request.method:
            case "GET" | "HEAD":
                form = self._form(request, kind)
                if request.asks("watch"):
                    return self._watches.open(target, request, form)
                page = reads.page(self.store, target, request.query)
                return Answer(200, form.many(page.items, page.metadata))
            case "POST":
                if kind.namespaced and target.namespace is None:
                    raise no_method()
                obj = self._writes.create(
                    target, bodies.read_object(request, kind, self.served.all()), dry_run=request.dry_run
                )
                return self._written(request, kind, obj, 201)
            case "DELETE":
                if kind.namespaced and target.namespace is None:
                    raise no_method()
                return self._deleted_all(request, target)
        raise no_method()

    def _reviewed(self, request: Request, target: Target, user: str) -> Answer:
        if request.method != "POST" or target.name:
            raise no_method()
        body = bodies.read_review(request, target.kind, self.served.all())
        answered = reviews.answered(target.kind, body, _shown(user), self._of_token, self._clock.stamp(), self._allows)
        return Answer(201, _encode(answered))

    def _of_token(self, token: str) -> Json | None:
        known = (self._users or {}).get(f"Bearer {token}")
        return None if known is None else _shown(known)

    def _assignment(self, request: Request, target: Target) -> Answer:
        if request.method != "POST":
            raise no_method()
        name = target.subresource.capitalize()
        body = bodies.read_other(request, name)
        if target.subresource == "binding":
            binding.bind(self.store, self._clock, target, body, dry_run=request.dry_run)
        else:
            binding.evict(self.store, self._writes, self._clock, target, body, dry_run=request.dry_run)
        return Answer(201, _encode({**_SUCCESS, "code": 201}))

    def _patched(self, request: Request, target: Target) -> Answer:
        media = request.content_type
        if media in bodies.YAML:
            patch: Any = bodies.read(request, target.kind)
        elif fault := nesting.fault_of_json(request.body):
            raise bad_request(f"error decoding patch: {fault}")
        else:
            patch = patches.parse(request.body)
        manager, strict = request.query.get("fieldManager", ""), request.query.get("fieldValidation") == "Strict"
        obj, created = self._writes.patch(target, media, patch, dry_run=request.dry_run, manager=manager, strict=strict)
        return self._written(request, target.kind, obj, 201 if created else 200)

    def _deleted(self, request: Request, target: Target) -> Answer:
        wanted = deletion.options(request, bodies.read_other(request, "DeleteOptions") if request.body else None)
        obj, gone = self._writes.delete(target, wanted)
        if not gone or target.kind is POD:
            return self._written(request, target.kind, obj, 200)
        details: Json = {"name": target.name, "group": target.kind.group, "kind": target.kind.plural}
        details["uid"] = obj["metadata"]["uid"]
        said = {**_SUCCESS, "details": {key: value for key, value in details.items() if value}}
        return Answer(200, _encode(said))

    def _deleted_all(self, request: Request, target: Target) -> Answer:
        wanted = deletion.options(request, bodies.read_other(request, "DeleteOptions") if request.body else None)
        page = reads.page(self.store, target, request.query)
        for obj in page.items:
            meta = obj["metadata"]
            one = Target(target.kind, meta.get("namespace", ""), meta["name"])
            self._writes.delete(one, wanted)
        return Answer(
            200, self._form(request, target.kind).many(page.items, {"resourceVersion": str(self.store.version)})
        )

    def _finalized(self, request: Request, target: Target, body: Json) -> Answer:
        """`namespaces/<name>/finalize`: removes the namespace once no finalizer holds it."""
        old = self.store.get(NAMESPACE, "", target.name)
        if old is None:
            raise not_found(NAMESPACE, target.name)
        new = {**old, "spec": body.get("spec") or {}}
        if deletion.let_go(NAMESPACE, new, old):
            self.store.remove(NAMESPACE, "", target.name)
        else:
            new = self.store.replace(NAMESPACE, new)
        return self._written(request, NAMESPACE, new, 200)

    def _written(self, request: Request, kind: Kind, obj: Json, status: int) -> Answer:
        answer = Answer(status, self._form(request, kind).one(obj))
        if status == 201 and (said := _unheeded(kind, obj)):
            answer.headers["warning"] = ", ".join(f'299 - "{_quotable(each)}"' for each in said)
        return answer

    def _form(self, request: Request, kind: Kind) -> Form:
        return Form(kind, request, self.store, self._clock.now)


def _shown(user: str) -> Json:
    """The user as reviews show it."""
    if user == ANYBODY:
        return {"username": user, "groups": ["system:unauthenticated"]}
    groups = ["system:masters"] if user == ADMIN else []
    return {"username": user, "groups": [*groups, "system:authenticated"]}


def _has(kind: Kind, subresource: str) -> bool:
    if subresource == "scale":
        return False
    if not subresource or subresource in kind.subresources:
        return True
    return kind is NAMESPACE and subresource == "finalize"


def _unheeded(kind: Kind, obj: Json) -> list[str]:
    """Warnings about fields of the new object that have no effect here."""
    if kind is POD:
        return unheeded(obj.get("spec") or {})
    if kind is JOB:
        return unheeded(obj["spec"]["template"].get("spec") or {}, "spec.template.spec")
    return []


def _quotable(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


def _check_dry_run(request: Request) -> None:
    """Raises Failure (422) if `dryRun` is neither empty nor All."""
    given = request.query.get("dryRun")
    if given in (None, "", "All") or request.method not in _OPTIONS:
        return
    problem = unsupported("dryRun", [given], ("All",))
    raise invalid(Kind("meta.k8s.io", "v1", _OPTIONS[request.method], ""), "", [problem])


def _failed(failure: Failure) -> Answer:
    headers = {"content-type": JSON}
    seconds = (failure.details or {}).get("retryAfterSeconds")
    if seconds:
        headers["retry-after"] = str(seconds)
    return Answer(failure.code, _encode(failure.status()), headers)
