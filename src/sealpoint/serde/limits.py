"""Limits of unauthenticated bytes, of caches that they fill, and of values that are written.

All limits of this package are defined here. `Limits` has the limits that a caller may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sealpoint.errors import LimitError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of unauthenticated bytes. The defaults accept any realistic checkpoint.

    Attributes:
        size_bytes: Length of a value in bytes; a legacy json row may have half as many bytes.
        depth: Nesting depth of containers and extensions.
        elements: Elements of all containers together; a pair of a map counts as one element, and an array
            that is the key of a map counts as one element per byte.
        records: Number of extensions: each becomes an object, and takes up to 50 us and 3 kB.
        patterns: Number of regular expressions: each may take 20 ms to compile.
        chunks: Number of LangChain's streamed messages: each may take 1 ms to complete.

    Example:
        >>> from sealpoint import JsonPlusSerializer
        >>> from sealpoint.serde.limits import Limits
        >>> roomy = JsonPlusSerializer(limits=Limits(elements=10_000_000))
    """

    size_bytes: int = 128 * 1024 * 1024
    # A decoder recurses once per level: 64 levels fit into a thread stack of 128 KiB, on Python 3.14 of 192.
    depth: int = 64
    elements: int = 2_000_000
    records: int = 100_000
    patterns: int = 100
    chunks: int = 2_000

    def over(self, name: str, message: str) -> LimitError:
        """Return the error for a value that exceeds a limit, with a hint that says how to raise the limit.

        Args:
            name: The field of `Limits` that has the limit.
            message: Message of the error.
        """
        limit = getattr(self, name)
        enough = MAX_PACKED_LEVELS if name == "depth" and limit < MAX_PACKED_LEVELS else 10 * limit
        by_command = name in OF_COMMANDS and (name != "depth" or enough == MAX_PACKED_LEVELS)
        option = f"--limits {name}={enough} on the command, " if by_command else ""
        python = f"serde=JsonPlusSerializer(limits=Limits({name}={enough})) in Python"
        hint = f"if the value is yours, raise this limit: {option}{python}; see docs/untrusted.md#limits"
        return LimitError(message, name, hint=hint)


DEFAULT_LIMITS: Final = Limits()

# --- copies: a decoder copies the payload of an extension, and again what is nested in it ---------

# Bytes of nested extensions, for each byte of the value. Without this bound, 64 extensions around one
# payload would copy each of its bytes 64 times.
MAX_COPIES: Final = 8

# Bytes of nested extensions that any value may have.
FREE_COPIED_BYTES: Final = 16 * 1024 * 1024

# --- arguments of the safe types ------------------------------------------------------------------

# Members of a set, or keys of a map, with the same hash: a few as (-1, -1), (-1, -2), thousands in an attack.
# Python keys the hash of text and bytes in each process. Tuples of integers hash the same in all, so an
# attacker can compute collisions in advance.
MAX_SAME_HASH: Final = 64

# If there are more keys, the probes for their slots in a table are counted; a power of two.
MIN_PROBED: Final = 1024
# Average probes per key. Numbers in equal steps take up to 40, chosen numbers thousands.
MAX_PROBES: Final = 128

# Characters of a UUID, a moment, an address or the key of a time zone.
MAX_SHORT_CHARS: Final = 64

MAX_DECIMAL_CHARS: Final = 1000
# The largest exponent of decimal128 (IEEE 754-2019, table 3.6). A larger one is cheap to read, but int()
# or a format such as "f" writes out every digit of it.
MAX_DECIMAL_EXPONENT: Final = 6144

MAX_PATTERN_CHARS: Final = 1000
# Lines of Python that the compiler of patterns may run. A wide range that ignores case takes millions.
MAX_PATTERN_STEPS: Final = 50_000

MAX_PARTS: Final = 1000
MAX_NAME_CHARS: Final = 1000

DAY_SECONDS: Final = 86_400
SECOND_MICROSECONDS: Final = 1_000_000

# --- fields of LangChain's messages ---------------------------------------------------------------

MAX_FIELDS: Final = 1000
# Tool calls in a provider's own form: LangChain converts them before it checks them.
MAX_RAW_TOOL_CALLS: Final = 1000

# Incomplete JSON of a streamed message: its parser takes time in the square of the length.
MAX_PARTIAL_JSON_CHARS: Final = 256

# --- JSON -----------------------------------------------------------------------------------------

MAX_JSON_DEPTH: Final = DEFAULT_LIMITS.depth
MAX_JSON_ELEMENTS: Final = DEFAULT_LIMITS.elements
MAX_NUMBER_BITS: Final = 14_284  # numbers of so many bits have at most `MAX_NUMBER_CHARS` digits

# --- written values: an encoder and a decoder recurse, and cannot see how much of the stack is free ------

# Levels of a value: one for a container, `OBJECT_LEVELS` for an object. On a stack of 8 MiB, CPython 3.11 on
# x86-64 writes 3,300 objects within each other and reads 4,000, and reads 13,000 containers. Up to here,
# with `UNCOUNTED_LEVELS` of both, two thirds of it are used.
MAX_WRITTEN_LEVELS: Final = 6000

OBJECT_LEVELS: Final = 4
# Up to here only the levels of objects are counted: to count those of containers takes a walk in Python.
UNCOUNTED_LEVELS: Final = 8 * OBJECT_LEVELS

# Containers within each other that msgpack packs in one call.
MAX_PACKED_LEVELS: Final = 255

# Limits of authenticated JSON.
_ANY: Final = 2**63
WRITTEN_LIMITS: Final = Limits(_ANY, MAX_PACKED_LEVELS, _ANY, _ANY, _ANY, _ANY)

# Limits of unsealed values that an operator declares as trusted, and seals.
OWN_LIMITS: Final = Limits(depth=MAX_PACKED_LEVELS, elements=20_000_000, records=1_000_000)

# Limits that ``--limits`` can raise. Not patterns: sealed, they would be compiled without a bound.
OF_COMMANDS: Final = ("size_bytes", "depth", "elements", "records", "chunks")

# --- how deep a value may be in a thread with a small stack, in which a decoder recurses ----------

# A thread with this much stack reads every value that is written, see `MAX_WRITTEN_LEVELS`.
LARGE_STACK_BYTES: Final = 7 * 1024 * 1024
# Assumed stack of a thread if the platform does not report it.
UNKNOWN_STACK_BYTES: Final = 1024 * 1024
# Stack bytes of a level, and of a level in fields of a model, which pydantic validates: measured were up to
# 770 and 4,700. With half of a stack of 128 KiB, that leaves the 64 levels of `Limits`.
LEVEL_BYTES: Final = 1000
MODEL_LEVEL_BYTES: Final = 5000
# A value of this many bytes has at most as many levels.
MIN_DEEP_BYTES: Final = DEFAULT_LIMITS.depth

# --- caches: their keys are names in the bytes, and must not fill memory --------------------------

MAX_LEARNED_TYPES: Final = 4096
MAX_LEARNED_PATTERNS: Final = 128
# Records of one class of messages, at some 80 bytes each.
MAX_LEARNED_MESSAGES: Final = 16_384

MAX_WARNINGS: Final = 100
# Texts with lone surrogates in one value: each object around one is packed again.
MAX_REPLACEMENTS: Final = 200_000
