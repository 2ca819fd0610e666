"""Records what the former version's service leaves in a cluster: `python -m tests.upgrade`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtests.shared.ledger import Service
from loadtests.shared.pods import Json
from tests.upgrade import former, scene


def main() -> None:
    with TemporaryDirectory() as name, scene.started() as cluster:
        folder = Path(name)
        settings = folder / "escher.yaml"
        settings.write_text(scene.SETTINGS)
        code = former.unpacked(folder / "code")
        cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": scene.NAMESPACE}})
        scene.define(cluster.admin, former.DEFINITIONS, queues=False)
        with former.service(cluster, code, settings, folder / "log"):
            service = Service(cluster.service_url)
            scene.furnish(cluster.admin, service)
            service.close()
        found = {path: [lasting(each) for each in cluster.admin.list_all(path)] for path in scene.COLLECTIONS}
    former.WRITTEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def lasting(each: Json) -> Json:
    """The object without what changes with each recording. UIDs stay: annotations name them."""
    metadata = each["metadata"]
    for field in ("managedFields", "resourceVersion", "creationTimestamp", "generation"):
        metadata.pop(field, None)
    return each


if __name__ == "__main__":
    main()
