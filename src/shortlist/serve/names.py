"""The route ``/v1/names``: search of a checklist, which may have names that the model does not know."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from shortlist._languages import best_language
from shortlist.checklist import Taxon
from shortlist.class_table import class_finder
from shortlist.serve import examples, schemas
from shortlist.serve.options import Language
from shortlist.serve.service import Service, language_of


def names_routes(service: Service) -> APIRouter:
    """Return the route of a service."""
    router, table = APIRouter(), service.model.classes
    find = class_finder(table)

    def class_of(taxon: Taxon) -> str | None:
        """Return the id of the model's class that a taxon is, by its names."""
        for name in (f"{taxon.name} {taxon.author}".strip(), taxon.name, *taxon.synonyms):
            try:
                index = find(name)
            except ValueError:  # the name of several classes
                continue
            if index is not None:
                return table.ids[index]
        return None

    @router.get(
        "/v1/names",
        response_model=schemas.NameList,
        responses=examples.responses("names", 401, 422, 429),
        summary="Names by how they begin, also with mistakes",
    )
    def names(
        request: Request,
        q: Annotated[str, Query(min_length=1, max_length=200, description="How a name begins.")],
        lang: Language = None,
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
    ) -> Response:
        """Search the checklist of the server, or the classes of the model if it has none."""
        service.rate.take(service.client(request))
        language = language_of(request, lang)
        listed = [
            {**_form(taxon, language), "matched": name, "mistakes": mistakes, "class_id": class_of(taxon)}
            for taxon, name, mistakes in service.names.search(q, limit)
        ]
        return JSONResponse({"total": len(service.names), "names": listed})

    return router


def _form(taxon: Taxon, language: str) -> dict[str, Any]:
    key = best_language(language, taxon.common_names)
    common: Sequence[str] = () if key is None else taxon.common_names[key]
    return {
        "id": taxon.id,
        "name": taxon.name,
        "author": taxon.author,
        "rank": taxon.rank,
        "parents": dict(taxon.parents),
        "common_names": list(common),
    }
