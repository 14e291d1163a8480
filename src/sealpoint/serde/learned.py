"""What a decoder has learned of one kind of record: the builder, and the class that it was made for.

It holds as long as the class stands in its module and the module in `sys.modules`, which is looked at
once in a call of `Decoder.decode`. After a reload another class stands there, and is learned anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde.classes import find_class, home_of

_modules: Final = sys.modules


class Learned:
    """One kind of record.

    Attributes:
        build: Builds from the argument.
        build_from_bytes: Builds from the bytes of the record too; ``None`` where ``build`` is enough.
        cls: The class that the builder was made for; ``None`` if none was imported.
        place: Name of the module of the class.
        home: The module.
        names: The names in it.
        seen: The latest call that found it current.
    """

    __slots__ = ("build", "build_from_bytes", "cls", "home", "names", "place", "seen")

    def __init__(
        self,
        build: Callable[[Any], Any],
        module: str,
        cls: Any,
        build_from_bytes: Callable[[bytes, Any], Any] | None = None,
    ) -> None:
        """Note a builder, and its class as it stands in ``module`` now."""
        self.build, self.build_from_bytes, self.cls = build, build_from_bytes, cls
        self.place = home_of(module)
        self.home = sys.modules.get(self.place)
        self.names = getattr(self.home, "__dict__", {})
        self.seen: object = None

    @classmethod
    def always(cls, build: Callable[[Any], Any], name: str) -> Learned:
        """Return what is current in every call: it names no class."""
        learned = cls(build, "builtins", None)
        learned.names = {name: None}
        return learned

    @classmethod
    def never(cls, build: Callable[[Any], Any]) -> Learned:
        """Return what is current in no call."""
        return cls(build, "", None)

    def require_current(self, name: str, call: object) -> None:
        """Note that the class still stands under ``name``, as seen by a call.

        Raises:
            KeyError: If it does not, or stands there only by ``__getattr__`` of the module.
        """
        if _modules[self.place] is not self.home or self.names[name] is not self.cls:
            raise KeyError(self.place)
        self.seen = call

    def is_current(self, module: str, name: str) -> bool:
        """Whether the class is the one that its module gives, if only by ``__getattr__``."""
        try:
            return self.cls is not None and self.cls is find_class(module, name)
        except UnbuildableValueError:
            return False
