"""Validation of arguments by their type annotations, for functions and for the fields of dataclasses.

`checked` decorates a function and `check_fields` is called in ``__post_init__``. A wrong type raises an
`ArgumentTypeError`, which is a TypeError, a wrong value an `InputError`. Both name the argument, what was expected and
what was given. `Range` in an annotation limits numbers: ``Annotated[int, Range(1)]`` is a positive integer.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tdvae.errors import ArgumentTypeError, InputError

if TYPE_CHECKING:
    from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[str, Any], Any]  # (name of the argument, value) → the value, converted to a plain int or float

COMPLEX = "complex"  # in an annotation of a tensor: its numbers may be complex
LONGEST_JUMP = 2**24  # δt of one jump: a float has 24 bits for it
LARGEST_INPUT = 1e15  # of a network, which sums and squares its inputs in 32-bit numbers
LARGEST = 2**63 - 1  # of integers: tensors, seeds and files have 64 bits


@dataclass(frozen=True)
class Range:
    """Limits of a number: ``least`` and ``most`` are allowed, ``above`` and ``below`` are not."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def check(self, name: str, value: float) -> None:
        limits = (
            ("at least", self.least, operator.ge),
            ("at most", self.most, operator.le),
            ("more than", self.above, operator.gt),
            ("less than", self.below, operator.lt),
        )
        for text, limit, holds in limits:
            if limit is not None and not holds(value, limit):
                raise InputError(f"{name}: expected {text} {limit}, got {value}")


Positive = Annotated[int, Range(1)]
NonNegative = Annotated[int, Range(0)]
PositiveNumber = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(0, 1)]
Seed = Annotated[int, Range(0)]
Samples = Annotated[int, Range(1, 1_000_000)]  # also sequences; more would hardly fit into memory


def checked(function: F) -> F:
    """Check the arguments of every call of a function against its annotations."""
    names = list(inspect.signature(function).parameters)
    hints: dict[str, Check] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hints:  # annotations can name types that are defined after the function
            hints.update(checks_of(function))
        positional = [hints[name](name, value) if name in hints else value for name, value in zip(names, args)]  # noqa: B905
        positional.extend(args[len(names) :])  # too many, which Python itself says
        for name, value in kwargs.items():
            if name in hints:
                kwargs[name] = hints[name](name, value)
        return function(*positional, **kwargs)

    return call  # type: ignore[return-value]


def checks_of(function: Callable[..., Any]) -> dict[str, Check]:
    """The checks of a function's parameters that have annotations."""
    parameters = inspect.signature(function).parameters
    hints = get_type_hints(inspect.unwrap(function), include_extras=True)
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: check_of(hints[name]) for name, p in parameters.items() if name in hints and p.kind not in variadic}


def check_fields(instance: Any) -> None:
    """Check the fields of a dataclass, also of a frozen one; called in its ``__post_init__``."""
    kind: type = type(instance)
    for name, check in _field_checks(kind).items():
        value = getattr(instance, name)
        converted = check(name, value)
        if converted is not value:
            object.__setattr__(instance, name, converted)


@functools.cache
def _field_checks(kind: type) -> dict[str, Check]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: check_of(hints[field.name]) for field in fields(kind)}


@functools.cache
def check_of(hint: Any) -> Check:
    """The check of a type annotation. Annotations that it does not know accept every value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated and COMPLEX in arguments:
        kind = arguments[0]
        return functools.partial(_of_type, test=lambda value: isinstance(value, kind), expected=_article(kind))
    if origin is Annotated:
        return _ranged(check_of(arguments[0]), [limit for limit in arguments[1:] if isinstance(limit, Range)])
    if origin is Literal:
        return functools.partial(choice, choices=arguments)
    if origin in (Union, types.UnionType):
        return functools.partial(_one_of, options=arguments)
    if origin is collections.abc.Callable:
        return functools.partial(_of_type, test=callable, expected="a function")
    if origin is tuple:
        return functools.partial(_tuple, items=arguments)
    if origin in (list, dict, type):
        return functools.partial(_of_type, test=lambda value: isinstance(value, origin), expected=_article(origin))
    if origin in (collections.abc.Sequence, collections.abc.Iterable):
        return functools.partial(_items, item=check_of(arguments[0]))
    plain: dict[Any, Check] = {int: whole, float: number, bool: _bool}
    if hint in plain:
        return plain[hint]
    if getattr(hint, "_is_protocol", False):
        members = [name for name in vars(hint) if not name.startswith("_")]
        has_all = functools.partial(_has, members=members)
        return functools.partial(_of_type, test=has_all, expected=f"{hint.__name__} ({', '.join(members)})", kind=hint)
    if isinstance(hint, type) and hint not in (object, Any):
        test = lambda value: isinstance(value, hint)  # noqa: E731
        is_tensor = hint.__name__ == "Tensor"
        check = functools.partial(_of_type, test=test, expected=_article(hint), kind=hint)
        return functools.partial(_real, check=check) if is_tensor else check
    return lambda name, value: value


def whole(name: str, value: Any) -> int:
    """An integer of at most 64 bits, also one of NumPy or a tensor of one element."""
    if type(value) is not int:
        try:
            if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
                raise TypeError
            value = value.__index__()
        except (TypeError, AttributeError, ValueError, RuntimeError):
            raise ArgumentTypeError(f"{name}: expected an integer, got {shown(value)}") from None
    if abs(value) > LARGEST:
        raise InputError(f"{name}: expected an integer of at most 64 bits, got one of {value.bit_length()} bits")
    return int(value)


def number(name: str, value: Any) -> float:
    """A finite number."""
    if type(value) not in (int, float):
        try:
            if isinstance(value, bool | str | bytes | complex) or "bool" in str(getattr(value, "dtype", "")):
                raise TypeError
            value = float(value)
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentTypeError(f"{name}: expected a number, got {shown(value)}") from None
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f"{name}: expected a number of usual size, got an integer of {value.bit_length()} bits")
    if not math.isfinite(value):
        raise InputError(f"{name}: expected a finite number, got {value}")
    return value


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of some values."""
    if type(value) not in {type(one) for one in choices}:
        raise ArgumentTypeError(f"{name}: expected one of {choices}, got {shown(value)}")
    if value not in choices:
        raise InputError(f"{name}: expected one of {choices}, got {shown(value)}")
    return value


def real(name: str, value: Tensor) -> Tensor:
    """A tensor of real numbers: the imaginary parts of others would be ignored."""
    if value.is_complex():
        raise InputError(f"{name}: expected real numbers, got {value.dtype}")
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """A tensor of finite real numbers."""
    if real(name, value).is_floating_point() and not holds(value.isfinite()):
        raise InputError(f"{name}: expected finite numbers, got NaN or infinity")
    return value


def moderate(name: str, value: Tensor) -> Tensor:
    """A tensor of real numbers for a network: finite, and not so large that their squares overflow."""
    if finite(name, value).is_floating_point() and not holds(value.abs() <= LARGEST_INPUT):
        raise InputError(
            f"{name}: expected numbers of at most {LARGEST_INPUT:g} in size, got {float(value.abs().max()):g}"
        )
    return value


def integers(name: str, value: Tensor) -> Tensor:
    """A tensor of integers."""
    if value.is_floating_point() or value.is_complex() or "bool" in str(value.dtype):
        raise InputError(f"{name}: expected integers, got {value.dtype}")
    return value


def shape(name: str, value: Tensor, expected: tuple[int | str, ...]) -> Tensor:
    """A tensor of a shape in which a text stands for any size."""
    same = len(expected) == value.ndim and all(
        isinstance(size, str) or size == given for size, given in zip(expected, value.shape, strict=True)
    )
    if not same:
        raise InputError(f"{name}: expected shape ({', '.join(map(str, expected))}), got {tuple(value.shape)}")
    return value


def rows(name: str, value: Tensor, count: int) -> Tensor:
    """A tensor that selects some of ``count`` rows: their indices, or a mask (count,)."""
    if value.dtype.is_floating_point or value.is_complex():
        raise InputError(f"{name}: expected indices or a mask, got {value.dtype}")
    if "bool" in str(value.dtype):
        return shape(name, value, (count,))
    shape(name, value, ("rows",))
    if not holds((value >= -count) & (value < count)):
        raise InputError(f"{name}: expected indices of {count} rows, got {int(value.min())} to {int(value.max())}")
    return value


def expanded(name: str, value: Tensor, shape: collections.abc.Sequence[int]) -> Tensor:
    """A tensor, expanded to a shape."""
    try:
        return value.expand(*shape)
    except RuntimeError:
        raise InputError(
            f"{name}: expected a shape that broadcasts to {tuple(shape)}, got {tuple(value.shape)}"
        ) from None


def holds(condition: Tensor) -> bool:
    """Whether a condition holds for all elements.

    True inside of `torch.func.vmap`, whose function cannot read values; what calls it has to check them before.
    """
    try:
        return bool(condition.all())
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        return True


def shown(value: Any) -> str:
    """A value in an error message: short ones as they are, others by their type."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        text = repr(value) if not isinstance(value, int) or abs(value) <= LARGEST else "an integer beyond 64 bits"
        return text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, type) or callable(value):
        return getattr(value, "__name__", type(value).__name__)
    described = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(described)}" if isinstance(described, tuple) else "")


def _ranged(check: Check, limits: list[Range]) -> Check:
    def ranged(name: str, value: Any) -> Any:
        value = check(name, value)
        for limit in limits:
            limit.check(name, value)
        return value

    return ranged


def _of_type(name: str, value: Any, test: Callable[[Any], bool], expected: str, kind: type | None = None) -> Any:
    if not test(value):
        made_by = getattr(kind, "made_by", None)  # how to get an instance, for types that users do not construct
        advice = f"; {made_by}" if isinstance(made_by, str) else ""
        raise ArgumentTypeError(f"{name}: expected {expected}, got {shown(value)}{advice}")
    return value


def _real(name: str, value: Any, check: Check) -> Any:
    if type(value).__module__ == "numpy":
        raise ArgumentTypeError(f"{name}: expected a Tensor, got {shown(value)}; convert it with torch.as_tensor")
    return real(name, check(name, value))


def _bool(name: str, value: Any) -> bool:
    if type(value).__name__ in ("bool", "bool_"):  # also NumPy's
        return bool(value)
    raise ArgumentTypeError(f"{name}: expected True or False, got {shown(value)}")


def _has(value: Any, members: list[str]) -> bool:
    return not isinstance(value, type) and all(hasattr(value, name) for name in members)


def _one_of(name: str, value: Any, options: tuple[Any, ...]) -> Any:
    """A value that fits one of several annotations."""
    if value is None and type(None) in options:
        return None
    failures: list[Exception] = []
    for option in options:
        if option is not type(None):
            try:
                return check_of(option)(name, value)
            except (ArgumentTypeError, InputError) as error:
                failures.append(error)
    for failure in failures:
        if isinstance(failure, InputError):  # the type fits this option, but not the value
            raise failure
    expected = " or ".join(str(failure).split("expected ", 1)[1].split(", got")[0] for failure in failures)
    raise ArgumentTypeError(f"{name}: expected {expected}, got {shown(value)}")


def _tuple(name: str, value: Any, items: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple | list):
        raise ArgumentTypeError(f"{name}: expected a tuple, got {shown(value)}")
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        raise InputError(f"{name}: expected {len(items)} values, got {len(value)}")
    return tuple(check_of(item)(name, one) for item, one in zip(items, value, strict=True))


def _items(name: str, value: Any, item: Check) -> Any:
    if isinstance(value, str | bytes) or not isinstance(value, collections.abc.Iterable):
        raise ArgumentTypeError(f"{name}: expected a list, got {shown(value)}")
    return [item(name, one) for one in value]


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"
