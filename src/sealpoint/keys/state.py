"""The former place of `sealpoint.seal.keys`, which classes and pickles still name."""

from __future__ import annotations

import sys

from sealpoint.seal import keys as moved

sys.modules[__name__] = moved
