"""Assemble the application: the routes around a service, and its error responses."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp

from shortlist.serve.feedback import feedback_routes
from shortlist.serve.guard import Guard
from shortlist.serve.names import names_routes
from shortlist.serve.observations import observation_routes
from shortlist.serve.page import page_routes
from shortlist.serve.plain_route import plain_route
from shortlist.serve.plantnet import error_form, plantnet_routes
from shortlist.serve.refusals import Refusal
from shortlist.serve.review import review_routes
from shortlist.serve.service import Service
from shortlist.serve.v1 import identify_routes, v1_routes

_ROUTES = (
    *(identify_routes, v1_routes, names_routes, feedback_routes, observation_routes),
    *(review_routes, plantnet_routes, page_routes),
)
_WORDS = {
    404: ("not_found", "There is nothing at this address."),
    405: ("wrong_method", "This address is not for this method."),
}


def make_app(
    service: Service, *, origins: Sequence[str] = (), hosts: Collection[str] | None = None
) -> ASGIApp:
    """Make the application of a service.

    Args:
        service: What answers.
        origins: Origins of other pages that may use the server (CORS); none by default.
        hosts: Names by which the server may be called; any if ``None``.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.close()

    app = FastAPI(
        title="shortlist",
        description="Send photos of one object, and get the short list of classes that it may be.",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page of documentation loads files from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    for make_routes in _ROUTES:
        app.include_router(make_routes(service))
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    app.router.routes[:0] = [  # faster routes, which answer before those that FastAPI describes
        plain_route(route) for route in identify_routes(service).routes if isinstance(route, APIRoute)
    ]
    inner: ASGIApp = app
    if origins:
        inner = CORSMiddleware(
            app,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["content-type", "x-api-key", "authorization", "x-person", "x-person-token"],
            expose_headers=["Retry-After", "RateLimit", "RateLimit-Policy"],
        )
    return Guard(inner, metrics=service.metrics, hosts=hosts, origins=origins)


def _version() -> str:
    try:
        return version("shortlist")
    except PackageNotFoundError:  # run from its source
        return "0"


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    if request.url.path.startswith("/v2/"):
        return error_form(error)
    return JSONResponse(error.to_dict(), status_code=error.status, headers=error.headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = str(
        [*first["loc"], "the request"][:2][-1]
    )  # the name of the option, without the index of a value
    words = str(first["msg"]).replace(" after validation", "")[:300]
    return _refused(request, Refusal(422, "bad_parameter", f"{place[:80]}: {words}."))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, words = _WORDS.get(error.status_code, ("refused", "The request is refused."))
    response = _refused(request, Refusal(error.status_code, code, words))
    response.headers.update(error.headers or {})
    return response


def _failed(request: Request, error: Exception) -> Response:
    return _refused(
        request, Refusal(500, "internal", "Something went wrong in the server. It is in its log.")
    )
