"""The former module name of `sealpoint.seal.carrier`, kept for classes and pickles that still name it."""

from __future__ import annotations

import sys

from sealpoint.seal import carrier as moved

sys.modules[__name__] = moved
