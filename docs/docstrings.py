"""Extension of the reference: examples become code blocks, and types are shown without the range of their values."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from griffe import (
    Attribute,
    Expr,
    ExprSubscript,
    ExprTuple,
    Extension,
    Function,
    Object,
)

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def plain(annotation: Any) -> Any:
    """An annotation without what `Annotated` adds to its type, such as the range of a number."""
    if (
        isinstance(annotation, ExprSubscript)
        and str(annotation.left) == "Annotated"
    ):
        assert isinstance(annotation.slice, ExprTuple)
        return plain(annotation.slice.elements[0])
    if isinstance(annotation, Expr):
        for name in (field.name for field in fields(annotation)):
            part = getattr(annotation, name)
            if isinstance(part, Expr):
                setattr(annotation, name, plain(part))
            elif isinstance(part, list):
                setattr(annotation, name, [plain(each) for each in part])
    return annotation


class Examples(Extension):
    """Fences the examples in the docstring of each object."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if isinstance(obj, Attribute):
            obj.annotation = plain(obj.annotation)
        if isinstance(obj, Function):
            obj.returns = plain(obj.returns)
            for parameter in obj.parameters:
                parameter.annotation = plain(parameter.annotation)
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value
            )
