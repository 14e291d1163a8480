"""Settings for all tests: how hard hypothesis tries, chosen by HYPOTHESIS_PROFILE."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadlines and no complaint about slow strategies: neither means anything on a busy machine.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("default", steady, max_examples=50)
settings.register_profile("ci", steady, max_examples=100, print_blob=True)
settings.register_profile("thorough", steady, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
