"""Configs: frozen dataclasses that hold all settings of a model or of one of its parts, and can be written as JSON."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from inspect import isabstract
from typing import Annotated, Any, ClassVar, Self

from tdvae.checks import Range, check_fields
from tdvae.errors import InputError

Size = Annotated[int, Range(1, 2**24)]
Count = Annotated[int, Range(1, 128)]


@dataclass(frozen=True)
class Config:
    """A config. Its fields are numbers, texts, tuples and other configs; their annotations are checked.

    A subclass stands beside the module that it builds. In JSON it is an object with the name of its class.
    """

    known: ClassVar[dict[str, type[Config]]] = {}  # by name

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Config.known[cls.__name__] = cls

    def __post_init__(self) -> None:
        check_fields(self)

    def describe(self) -> dict[str, object]:
        """The config as JSON-compatible values; `from_description` is the inverse."""
        return {"config": type(self).__name__} | {f.name: _described(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_description(cls, values: object, name: str = "config") -> Self:
        """The config that `describe` returned. Lists, which JSON has instead of tuples, are converted."""
        config = _restored(values, name)
        if not isinstance(config, cls):
            raise InputError(f"{name}: expected the description of a {cls.__name__}, got {type(config).__name__}")
        return config


def _described(value: Any) -> Any:
    if isinstance(value, Config):
        return value.describe()
    return [_described(one) for one in value] if isinstance(value, tuple) else value


def _restored(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return tuple(_restored(one, name) for one in value)
    if not isinstance(value, dict):
        return value
    kind, known = value.get("config"), [one for one, cls in Config.known.items() if not isabstract(cls)]
    if kind not in known:
        raise InputError(f"{name}: expected one of the configs {', '.join(sorted(known))}, got {kind!r}")
    names = {field.name for field in fields(Config.known[kind])}
    if unknown := sorted(map(str, value.keys() - names - {"config"})):
        raise InputError(
            f"{name}: expected only fields of {kind}, got {', '.join(unknown)}; was it written by a newer version?"
        )
    needed = {f.name for f in fields(Config.known[kind]) if f.default is MISSING}
    if missing := sorted(needed - value.keys()):
        raise InputError(f"{name}: expected the fields {', '.join(sorted(needed))} of {kind}, got no {missing[0]}")
    return Config.known[kind](**{key: _restored(one, f"{name}.{key}") for key, one in value.items() if key in names})
