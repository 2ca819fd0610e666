"""Control plane: plays the history on a real control plane, in real time.

The cluster starts without the service, with an audit log and the service's kinds. The service starts after the scene
has settled, and stops before `escher cleanup`. It may touch none of the others' objects, and harm none of their pods.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from lab.controlplane.api import Api, ApiError
from lab.controlplane.clusters import RealCluster
from loadtests.harm.control_plane import AuditLog, Follower, following
from loadtests.history.asks import Ask, Placed
from loadtests.history.course import CHANGED, course
from loadtests.history.dumps import PASSING, Dump, content, differences, keys_of_ours, without_our_keys
from loadtests.history.outcome import Outcome
from loadtests.history.scene import settle
from loadtests.history.touches import SERVICE, Touches, managed, names_the_service
from loadtests.shared.pods import Json

_WITHIN = 60.0
_SERVED_WITHIN = 20.0
"""Seconds until a new kind is served, and until a new namespace has its account."""
_LOOK_EVERY = 0.2
_CLEANUP_WITHIN = 120.0


def play(cluster: RealCluster, seconds: float) -> Outcome:
    """The outcome: Escher runs for this many seconds, and is then uninstalled."""
    api = cluster.admin
    failed = [wrong for ask in settle() if (wrong := _done(api, ask, patient=True))]
    if not _holds(lambda: _settled(api)):
        raise TimeoutError(f"the scene has not settled within {_WITHIN:g} s")
    before = dumped(api)
    touches, log = Touches(), AuditLog(cluster.audit_log)
    log.more()
    with following(api, cluster.audit_log) as witness:
        cluster.start_component("service")
        failed += _carried_out(cluster, seconds, witness)
        witness.finish()
        harmed = list(map(str, witness.violations()))
    there = stored(api)
    if not names_the_service(there):
        failed.append(f"no field of any object is said to be written by {SERVICE}, though some are")
    cluster.stop_component("service")
    for event in log.more():
        touches.heard(event)
    left = _cleaned(cluster)
    contents = {path: content(each) for path, each in there.items()}
    theirs = without_our_keys(before)
    return Outcome(
        touches.found + managed(there),
        harmed,
        failed,
        differences(theirs, without_our_keys(_of_others(contents)), CHANGED),
        differences(theirs, dumped(api), CHANGED) + left,
        touches.writes,
        witness.witness.evictions,
        keys_of_ours(contents),
    )


def _carried_out(cluster: RealCluster, seconds: float, witness: Follower) -> list[str]:
    """Carries out the course, each part at its time; returns each answer that was wrong."""
    began, failed = time.monotonic(), []
    for moment in course():
        _sleep_until(began + moment.share * seconds)
        if isinstance(moment.what, str):
            cluster.kill("service")
            witness.interrupted()
            cluster.start_component("service")
        elif isinstance(moment.what, Placed):
            if not _holds(partial(_placed, cluster.admin, moment.what)):
                failed.append(f"{moment.what}: not within {_WITHIN:g} s")
        elif wrong := _done(cluster.admin, moment.what):
            failed.append(wrong)
    _sleep_until(began + seconds)
    return failed


def _sleep_until(when: float) -> None:
    threading.Event().wait(max(0.0, when - time.monotonic()))


def _holds(look: Callable[[], bool]) -> bool:
    """Whether it becomes true within a minute."""
    deadline = time.monotonic() + _WITHIN
    while not look():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(_LOOK_EVERY)
    return True


def _done(api: Api, ask: Ask, *, patient: bool = False) -> str:
    """What is wrong with the answer, or empty. `patient`: waits for its kind and namespace."""
    deadline = time.monotonic() + _SERVED_WITHIN
    while True:
        try:
            _sent(api, ask)
        except ApiError as error:
            if patient and error.status in (403, 404) and time.monotonic() < deadline:
                threading.Event().wait(_LOOK_EVERY)
                continue
            return "" if ask.refused else f"{ask}: {error}"
        return f"{ask}: was not refused" if ask.refused else ""


def _sent(api: Api, ask: Ask) -> Json:
    match ask.method:
        case "POST":
            return api.post(ask.path, ask.body or {})
        case "PATCH":
            return api.patch(ask.path, ask.body or {})
        case _:
            return api.delete(ask.path)


def _placed(api: Api, placed: Placed) -> bool:
    return all(api.get(path)["spec"].get("nodeName") for path in placed.paths)


def _settled(api: Api) -> bool:
    """Whether all bound pods run, and the budgets and the quota have counted them."""
    pods = api.list_all("/api/v1/pods")
    budgets = api.list_all("/apis/policy/v1/poddisruptionbudgets")
    quotas = api.list_all("/api/v1/resourcequotas")
    return (
        all(each["status"].get("phase") == "Running" for each in pods if each["spec"].get("nodeName"))
        and all((each.get("status") or {}).get("disruptionsAllowed") for each in budgets)
        and all((each.get("status") or {}).get("used") == each["spec"]["hard"] for each in quotas)
    )


# -- objects ----------------------------------------------------------------------------------------------------------


def dumped(api: Api) -> Dump:
    return {path: content(each) for path, each in stored(api).items()}


def stored(api: Api) -> Dump:
    """All objects of all kinds that can be listed, except `PASSING`.

    The API server may already name, or still name, a kind that it does not serve; this waits."""
    deadline = time.monotonic() + _SERVED_WITHIN
    while True:
        try:
            return _stored(api)
        except ApiError as error:
            if error.status not in (404, 503) or time.monotonic() > deadline:
                raise
        threading.Event().wait(_LOOK_EVERY)


def _stored(api: Api) -> Dump:
    found = {}
    for root, group, plural in _kinds(api):
        if (group, plural) in PASSING:
            continue
        for each in api.list_all(f"{root}/{plural}"):
            metadata = each["metadata"]
            where = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            found[f"{root}{where}/{plural}/{metadata['name']}"] = each
    return found


def _kinds(api: Api) -> list[tuple[str, str, str]]:
    """The path, group and plural of each kind that can be listed, in the preferred version."""
    roots = [("/api/v1", "")]
    for group in api.get("/apis")["groups"]:
        roots.append((f"/apis/{group['preferredVersion']['groupVersion']}", group["name"]))
    return [
        (root, group, each["name"])
        for root, group in roots
        for each in api.get(root)["resources"]
        if "list" in each["verbs"] and "/" not in each["name"] and each["name"] != "componentstatuses"
    ]


def _of_others(dump: Dump) -> Dump:
    """Without the objects of the users who try Escher."""
    return {path: each for path, each in dump.items() if not path.startswith("/apis/escher.dev/")}


def _cleaned(cluster: RealCluster) -> list[str]:
    """Runs `escher cleanup`; returns what it could not do."""
    command = [sys.executable, "-m", "extender", "cleanup", "--yes", "--kubeconfig", str(cluster.kubeconfig)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_CLEANUP_WITHIN, check=False)
    return [] if ended.returncode == 0 else [f"escher cleanup: {ended.stderr or ended.stdout}"]
