"""Hypothesis for all tests: the same examples on every run, and the blob that reproduces a failure in the report.

HYPOTHESIS_PROFILE=explore draws new examples, many of them, and prints the seed to run them again with. The profile
`mutants` is for mutation testing: the first fifth of the examples, and a failure is enough, none simpler is looked for.
Where a test needs more examples than others or fewer, it says so as a multiple of the profile's.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "ci", derandomize=True, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.register_profile(
    "mutants", settings.get_profile("ci"), max_examples=20, phases=[Phase.explicit, Phase.generate], print_blob=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
