"""The former place of `sealpoint.seal.carrier`, which classes and pickles still name."""

from __future__ import annotations

import sys

from sealpoint.seal import carrier as moved

sys.modules[__name__] = moved
