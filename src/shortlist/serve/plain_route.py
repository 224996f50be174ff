"""Routes that are called most, without FastAPI's reading of options."""

from functools import lru_cache
from typing import Any, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MANY = 2000  # bytes: longer options are not remembered


def plain_route(described: APIRoute) -> Route:
    """Return a route of Starlette for one of FastAPI, to be put before it: FastAPI then only describes it.

    The function takes the request and ``options``, a model of pydantic, from the address. At 64 clients a
    list takes 1.09 times as much of the processor as without any routing (the load of
    ``benchmarks/serve_load.py``), and 1.5 times if FastAPI calls the function.
    """
    endpoint, form = described.endpoint, get_type_hints(described.endpoint)["options"]

    async def handle(request: Request) -> Response:
        request.scope["route"] = described  # for the counters
        query: bytes = request.scope["query_string"]
        read = _parsed if len(query) > _MANY else _remembered
        return await endpoint(request, read(form, query))

    return Route(described.path, handle, methods=["POST"])


def _parsed(form: type[BaseModel], query: bytes) -> BaseModel:
    """Return the options that an address has, as FastAPI reads them."""
    values: dict[str, Any] = {}
    lists = {name for name, field in form.model_fields.items() if get_origin(field.annotation) is list}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return form.model_validate(values)
    except ValidationError as error:
        errors = [{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise RequestValidationError(errors) from None


_remembered = lru_cache(maxsize=256)(_parsed)  # refusals are not remembered
