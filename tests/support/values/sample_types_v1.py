"""Sample types of pydantic's version 1, which no Python from 3.14 on can run."""

from __future__ import annotations

from pydantic.v1 import BaseModel, Field, PrivateAttr, SecretStr


class Model1(BaseModel):
    a: int
    model: Model1 | None = None


class Aliased1(BaseModel):
    foo: int = Field(alias="fooAlias")


class AliasedDefault1(BaseModel):
    """LangGraph gives back the default instead of what was stored."""

    foo: int = Field(default=0, alias="fooAlias")


class ByName1(BaseModel):
    foo: int = Field(default=0, alias="fooAlias")

    class Config:
        allow_population_by_field_name = True


class Root1(BaseModel):
    __root__: list[int]


class Roots1(BaseModel):
    numbers: Root1


class Secretive1(BaseModel):
    password: SecretStr


class Private1(BaseModel):
    a: int = 1
    _hidden: int = PrivateAttr(default=2)


class Extra1(BaseModel):
    a: int = 1

    class Config:
        extra = "allow"


class Frozen1(BaseModel):
    a: int = 1

    class Config:
        frozen = True


Model1.update_forward_refs()
