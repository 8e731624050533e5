"""What a request brings, as values: a form or a JSON object."""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from choicewise.errors import UsageError

if TYPE_CHECKING:
    from starlette.requests import Request

_FORM = "application/x-www-form-urlencoded"
_FIELDS = 16


async def form_fields(request: "Request") -> dict[str, Any]:
    """The fields of a form, or the object in the request.  UsageError for what is neither."""
    if is_form(request):
        content = await request.body()
        try:
            return dict(parse_qsl(content.decode("utf-8"), max_num_fields=_FIELDS, strict_parsing=bool(content)))
        except ValueError as error:
            raise UsageError("the form can't be read; send model, revision, dtype and token") from error
    return await fields(request)


async def fields(request: "Request") -> dict[str, Any]:
    """The JSON object in the request, whatever it says that it is.  UsageError where it is none."""
    content = await request.body()
    try:
        value = json.loads(content.decode("utf-8") or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError("the content must be a JSON object in UTF-8") from error
    if not isinstance(value, dict):
        raise UsageError("the content must be a JSON object in UTF-8")
    return value


def is_form(request: "Request") -> bool:
    """Whether it comes from a form of a page."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM


def text(values: dict[str, Any], name: str, longest: int = 2000, default: str | None = None) -> str:
    """A text of those values, cut where it is too long.  UsageError where it is missing or something else."""
    value = values.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f'"{name}" must be text')
    return value[:longest].encode("utf-8", "replace").decode("utf-8")


def count(values: dict[str, Any], name: str) -> int:
    """A whole number from 0 up; 0 where it is not said.  UsageError for something else."""
    value = values.get(name) or 0
    if type(value) is not int or not 0 <= value < 2**53:
        raise UsageError(f'"{name}" must be a whole number from 0 up')
    return value


def truth(values: dict[str, Any], name: str) -> bool:
    """True or false; UsageError for something else."""
    value = values.get(name)
    if not isinstance(value, bool):
        raise UsageError(f'"{name}" must be true or false')
    return value


def _no_number(name: str) -> None:
    raise ValueError(name)
