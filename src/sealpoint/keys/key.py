"""Former module name of `sealpoint.seal.keys`, which pickles and the ``__module__`` of classes still use."""

from __future__ import annotations

import sys

from sealpoint.seal import keys as moved

sys.modules[__name__] = moved
