"""A short way to the routes that are called most: the framework's own takes as long as a small network."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_origin
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist.serve.refusals import Refusal

__all__ = ["Shortcut", "Shortcuts"]

_LOG = logging.getLogger("shortlist.serve")
_MANY = 2000  # bytes of options that are not remembered


@dataclass(frozen=True)
class Shortcut:
    """A route by POST whose only parameters are options in the address.

    Args:
        path: Its address.
        endpoint: The function that FastAPI would call.
        options: The form of its options.
    """

    path: str
    endpoint: Callable[[Request, Any], Awaitable[Response]]
    options: type[BaseModel]


class Shortcuts:
    """A middleware that calls the functions of some routes itself; all else goes on.

    Args:
        app: What it surrounds; it has the same routes, for its description.
        routes: The routes.
        refused: Function that turns a refusal into an answer.
        invalid: Function that turns bad options into an answer.
        failed: Function that turns any other error into an answer; the error goes to the log.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Mapping[str, Shortcut],
        refused: Callable[[Request, Exception], Response],
        invalid: Callable[[Request, Exception], Response],
        failed: Callable[[Request, Exception], Response],
    ) -> None:
        self._app, self._routes = app, routes
        self._refused, self._invalid, self._failed = refused, invalid, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        route = self._routes.get(scope.get("path", "")) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # for the counters
        request = Request(scope, receive)
        try:
            response = await route.endpoint(request, _options(route.options, scope["query_string"]))
        except Refusal as error:
            response = self._refused(request, error)
        except RequestValidationError as error:
            response = self._invalid(request, error)
        except Exception as error:
            _LOG.error("a request failed: %s", type(error).__name__, exc_info=error)
            response = self._failed(request, error)
        await response(scope, receive, send)


def _options(form: type[BaseModel], query: bytes) -> BaseModel:
    return _parsed(form, query) if len(query) > _MANY else _remembered(form, query)


def _parsed(form: type[BaseModel], query: bytes) -> BaseModel:
    """Return the options that an address has, as FastAPI reads them."""
    found: dict[str, Any] = {}
    lists = {name for name, field in form.model_fields.items() if get_origin(field.annotation) is list}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    try:
        return form.model_validate(found)
    except ValidationError as error:
        errors = [{**one, "loc": ("query", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(errors) from None


_remembered = lru_cache(maxsize=256)(_parsed)  # refusals are not remembered
