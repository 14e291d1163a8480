"""The former place of `sealpoint.seal.context`, which classes and pickles still name."""

from __future__ import annotations

import sys

from sealpoint.seal import context as moved

sys.modules[__name__] = moved
