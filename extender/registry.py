"""Registry: finds and creates policies, also those that do not come with Escher.

The setting `policies` names each of them: as `module:Class`, or as an entry point of the group `escher.policies` in an
installed package. Only named ones are loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

from extender.core import policy as seam
from extender.core.policy import Policy
from extender.filters import made
from extender.filters.gang import GANG
from extender.settings.settings import BadSettings

ENTRY_POINTS = "escher.policies"
POINTS = (
    seam.Observes,
    seam.KeepsEnded,
    seam.Filters,
    seam.RequeueHints,
    seam.Scores,
    seam.PlacementPlugin,
    seam.Reserves,
    seam.YieldsReservations,
    seam.PermitsBinds,
    seam.Preempts,
    seam.Orders,
    seam.CountsHeld,
    seam.Settles,
    seam.KeepsTime,
    seam.Acts,
)


class BadPolicy(BadSettings):
    """A named policy that cannot be created; `str()` says which, why, and what to do."""


_FORMER_NAMES = {"take_stirred": "take_requeue_hints", "heed": "on_event"}
"""Methods of policies that were renamed; policies of others may still have the old name."""


def policies(names: Sequence[str] = (), folder: Path | None = None) -> list[Policy]:
    """Escher's policies, and then the named ones. `folder`: a further path for modules.

    Raises BadPolicy.
    """
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found = made()
    for name in names:
        policy = _make(name)
        if policy.name in {GANG, *(each.name for each in found)}:
            raise BadPolicy(
                f"policies: {name!r} is called {policy.name!r}, and so is another: give it a name of its own"
            )
        found.append(policy)
    return found


def _make(name: str) -> Policy:
    kind = _found(name)
    try:
        policy: Any = kind()
    except Exception as error:
        raise BadPolicy(f"policies: {name!r} cannot be made without arguments: {error!r}") from error
    if not isinstance(getattr(policy, "name", None), str):
        raise BadPolicy(f"policies: {name!r} has no `name`; give its class one, such as name = 'weekend'")
    for old, new in _FORMER_NAMES.items():
        if hasattr(policy, old) and not hasattr(policy, new):
            setattr(type(policy), new, getattr(type(policy), old))
    if not any(isinstance(policy, point) for point in POINTS):
        points = ", ".join(sorted({each for point in POINTS for each in vars(point) if not each.startswith("_")}))
        raise BadPolicy(f"policies: {name!r} has none of the methods that a policy may have: {points}")
    return cast("Policy", policy)


def _found(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon:
        offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
        if name not in offered:
            known = ", ".join(sorted(offered)) or "none"
            raise BadPolicy(
                f"policies: {name!r} is no entry point of {ENTRY_POINTS} ({known} installed); or write module:Class"
            )
        return offered[name].load()
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise BadPolicy(
            f"policies: {name!r}: no module {module!r} can be imported ({error}); set policies_folder to its folder"
        ) from error
    except AttributeError as error:
        raise BadPolicy(f"policies: {name!r}: module {module!r} has no {attribute!r}") from error
