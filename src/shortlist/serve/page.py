"""The page: routes ``/`` and ``/static/...``."""

from fastapi import APIRouter

from shortlist.serve.service import Service

__all__ = ["page_routes"]


def page_routes(service: Service) -> APIRouter:
    """Return the routes of the page."""
    return APIRouter()
