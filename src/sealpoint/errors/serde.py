"""Errors of serialization."""

from __future__ import annotations

from sealpoint.errors.root import SealpointError, excerpt


class SerdeError(SealpointError):
    """A value cannot be serialized or rebuilt."""


class UnsupportedTypeError(SerdeError, TypeError):
    """A value cannot be written: the serializer does not support its type."""

    hint = "convert it to a supported type; see docs/serializer.md"


class NestingError(UnsupportedTypeError):
    """A value cannot be written: it is nested so deeply that writing or reading it may exhaust the stack."""

    hint = "store a long chain of objects as a list"


class _NamedTypeError(SerdeError):
    def __init__(self, module: str, name: str, cause: str, *, hint: str | None = None) -> None:
        super().__init__(module, name, cause, hint=hint)
        self.module = module
        self.name = name
        self.cause = cause


class UnreadableTypeError(_NamedTypeError, TypeError):
    """A value cannot be written: a reader would not find its class by module and name.

    Attributes:
        module: Module of the class.
        name: Name of the class, as it would be written.
        cause: Why it would not be found.
    """

    hint = "define the class at the top level of a module, under its own name"

    def __str__(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} cannot be read back: {self.cause}"


class UnknownTypeError(SerdeError, NotImplementedError):
    """Bytes have a serialization type that is unknown or not enabled."""


class DecodeError(SerdeError, ValueError):
    """Bytes do not have the format that their type names."""

    hint = "the row was damaged or forged; restore it from backup"


class LimitError(DecodeError):
    """Unauthenticated bytes exceed a limit: size, depth or number of elements."""

    hint = "if the value is really yours, pass higher limits="


class BlockedTypeError(SerdeError, TypeError):
    """Bytes name a type that is not on the allowlist. Nothing was imported.

    Attributes:
        module: Module of the type, as the bytes name it.
        name: Name of the type in that module, as the bytes name it.
    """

    _advice: str = "{parameter}={allowlist}"

    def __init__(self, module: str, name: str, parameter: str = "allowed_msgpack_modules") -> None:
        allowlist = f"[({excerpt(module)}, {excerpt(name)})]"
        advice = self._advice.format(parameter=parameter, allowlist=allowlist)
        super().__init__(module, name, parameter, hint=f"if the type is yours, allow it: {advice}")
        self.module = module
        self.name = name

    def __str__(self) -> str:
        return f"type {excerpt(f'{self.module}.{self.name}')} is not on the allowlist"


class UnauthenticatedTypeError(BlockedTypeError):
    """Bytes that no key has authenticated name a type that is not on the allowlist."""

    _advice = (
        "serde.with_msgpack_allowlist({allowlist});"
        " 'sealpoint types DB --emit' prints a list of all that need it"
    )

    def __str__(self) -> str:
        return f"{super().__str__()}, and no key has authenticated the value"


class UnbuildableValueError(_NamedTypeError, ValueError):
    """A type refuses the arguments that the bytes contain for it.

    Attributes:
        module: Module of the type, as the bytes name it.
        name: Name of the type in that module, as the bytes name it.
        cause: Why it refuses them.
    """

    hint = (
        "the type has changed since the value was written, or the bytes were forged; "
        'JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
    )

    def __str__(self) -> str:
        return f"cannot rebuild {excerpt(f'{self.module}.{self.name}')}: {self.cause}"
