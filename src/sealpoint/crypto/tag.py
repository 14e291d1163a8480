"""The former module name of `sealpoint.seal.tag`, kept for classes and pickles that still name it."""

from __future__ import annotations

import sys

from sealpoint.seal import tag as moved

sys.modules[__name__] = moved
