"""The former place of `sealpoint.seal.tag`, which classes and pickles still name."""

from __future__ import annotations

import sys

from sealpoint.seal import tag as moved

sys.modules[__name__] = moved
