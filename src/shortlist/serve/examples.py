"""Bodies, examples and refusals for OpenAPI."""

from typing import Any

from pydantic import BaseModel

from shortlist.serve.schemas import Error

_REFUSALS = {
    400: ("The request is not well formed.", "bad_form", "The form is not well formed: it ends too early."),
    401: ("A key is missing or wrong.", "key_missing", "This server needs a key: send it as X-API-Key."),
    403: (
        "This is not allowed.",
        "foreign_page",
        "A page of another site must not send this. Allow its origin with --cors.",
    ),
    404: ("There is none of this id.", "unknown_class", "The model has no class of this id."),
    408: ("The body took too long.", "too_slow", "The body was not there in 30 s."),
    409: ("Another answer has this id.", "other_answer", "Another answer was recorded with this id."),
    413: ("Something is too large.", "too_many_pixels", "The image has more than 50,000,000 pixels."),
    415: (
        "This is in a wrong format.",
        "unknown_format",
        "The file is no image in JPEG, PNG or WebP format.",
    ),
    422: (
        "A parameter or an image cannot be used.",
        "damaged_image",
        "The image cannot be decoded: it is cut off.",
    ),
    429: ("Too many requests in a minute.", "rate_limit", "Too many requests: 60 per minute are allowed."),
    503: (
        "The server is busy.",
        "busy",
        "The server is busy: too many images wait for the model. Try again.",
    ),
    507: ("The answer could not be kept.", "log_full", "The store of answers is full: nothing was kept."),
}
_MODEL = {"name": "glyphs", "version": "3f9c1d2e4a5b"}
_NAMES = {"id": "U+0041", "name": "A", "author": "", "common_names": [], "parents": {"script": "Latin"}}
_CLASS = {**_NAMES, "count": 140, "rare": False}
_IMAGE = {
    "id": "0-17",
    "similarity": 0.93,
    "thumbnail": "/v1/images/0-17",
    "author": "A. Person",
    "license": "CC BY 4.0",
    "source": "",
    "date": "2024-05-01",
    "organ": "",
}
_ANSWER = {
    "status": "ok",
    "candidates": [
        {
            **_NAMES,
            "probability": 0.71,
            "in_set": True,
            "rare": False,
            "enters_at": {"top": 1, "coverage": 0.12, "average": 0.81},
            "related_images": [_IMAGE],
        }
    ],
    "set_size": 1,
    "set_probability": 0.71,
    "choice": {"predictor": "conformal90", "top": None, "average": None, "coverage": None, "macro": False}
    | {"at_least": 0, "at_most": None, "place": None, "group": None},
    "promise": {
        "words": "90 of 100 such lists contain the right class.",
        "about": "rows",
        "level": 0.9,
        "size": None,
        "rows": 1341,
        "holds": True,
        "why_not": None,
    },
    "common_ancestor": None,
    "next_photo": None,
    "renormalized": False,
    "novelty": None,
    "nodes": None,
}
_OBSERVED = "5f0c6f1e9a0b4c7d8e2f1a3b5c7d9e0f1a2b3c4d5e6f7081"
_KEPT = {"kept": True, "number": 41, "new": True, "observation": _OBSERVED, "flags": []}
_OBSERVATION = {
    "id": _OBSERVED,
    "own": False,
    "photos": [{"address": f"/v1/observations/{_OBSERVED}/photos/0", "organ": "leaf"}],
    "author": "A. Person",
    "license": "CC BY 4.0",
    "date": "2026-05-01",
    "location": {"latitude": 43.65, "longitude": 3.85, "uncertainty": 6873.0},
    "candidates": [
        {**_NAMES, "rare": False, "probability": 0.71, "in_set": True, "related_images": [_IMAGE]}
    ],
    "status": "ok",
    "flags": [],
    "model": "3f9c1d2e4a5b",
    "vote": {"verb": "confirm", "class_id": "U+0041", "name": "A", "people": 1},
    "votes": [{"verb": "confirm", "class_id": "U+0041", "name": "A", "people": 2}],
}
_EXAMPLES: dict[str, Any] = {
    "identify": {**_ANSWER, "images": 1, "model": _MODEL, "seconds": 0.021},
    "batch": {"answers": [_ANSWER], "model": _MODEL, "seconds": 0.025},
    "classes": {"total": 1, "classes": [_CLASS]},
    "class": {
        **_CLASS,
        "synonyms": [],
        "common_names_by_language": {},
        "external": {},
        "confused_with": [{"id": "U+0391", "name": "Α", "probability": 0.31}],
        "example_images": [_IMAGE],
    },
    "names": {
        "total": 412_000,
        "names": [
            {"id": "2878688", "name": "Quercus robur", "author": "L.", "rank": "species"}
            | {"parents": {"genus": "Quercus", "family": "Fagaceae"}, "common_names": ["English oak"]}
            | {"matched": "Quercus pedunculata Ehrh.", "mistakes": 1, "class_id": None}
        ],
    },
    "places": {
        "places": [
            {
                "name": "greece",
                "title": "Greece",
                "titles": {"en": "Greece", "de": "Griechenland"},
                "classes": 24,
                "unknown": 1,
                "unknown_names": ["DIGAMMA"],
            }
        ]
    },
    "ladder": {
        "rows": 310,
        "words": "A coverage is promised if it is chosen before the list is seen.",
        "scope": "This is about the 24 classes of Greece, and not about a class that does not occur there.",
        "coverage": [{"coverage": 0.9, "average_size": 1.3}],
        "average": [{"average": 2, "share": 0.95}],
        "top": [{"top": 1, "share": 0.86}],
    },
    "feedback": _KEPT,
    "observe": _KEPT,
    "vote": {**_KEPT, "number": 42},
    "observation": _OBSERVATION,
    "review": {"waiting": 17, "observation": {**_OBSERVATION, "vote": None, "votes": None}},
    "feedback_stats": {
        "events": 2,
        "verbs": {"confirm": 1, "other_class": 1},
        "people": 2,
        "images": 1,
        "copies": 1,
        "deletions": 0,
        "erased_events": 0,
        "first": "2026-05-01T10:00:00.000+00:00",
        "last": "2026-05-01T10:01:00.000+00:00",
    },
    "feedback_erased": {"events": 3, "copies": 1, "pending": False},
}


def responses(name: str | None, *refused: int) -> dict[int | str, dict[str, Any]]:
    """Return the example of a good answer, and the refusals that a route can give."""
    found: dict[int | str, dict[str, Any]] = {}
    if name in _EXAMPLES:
        good = 201 if name in ("feedback", "observe", "vote") else 200
        found[good] = {"content": {"application/json": {"example": _EXAMPLES[name]}}}
    for status in refused:
        words, code, message = _REFUSALS[status]
        example = {"error": {"code": code, "message": message}}
        found[status] = {
            "model": Error,
            "description": words,
            "content": {"application/json": {"example": example}},
        }
    return found


def images_body(most: int, words: str) -> dict[str, Any]:
    """Return the form of a body with images, which the routes read by themselves to count its bytes."""
    files = {
        "type": "array",
        "items": {"type": "string", "format": "binary"},
        "minItems": 1,
        "maxItems": most,
    }
    schema = {
        "type": "object",
        "required": ["images"],
        "properties": {"images": {**files, "description": words}},
        "additionalProperties": False,
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def feedback_body(form: type[BaseModel]) -> dict[str, Any]:
    """Return the form of a person's answer: JSON, or a form with photos that may be kept."""
    example = {
        "verb": "confirm",
        "class_id": "U+0041",
        "id": "7d3f0c52-6a0e-4d0f-9f5e-0d8a1c2b3e4f",
        "person": "p-41",
        "receipt": "b0xK...",
        "consent": False,
    }
    files = {
        "type": "object",
        "required": ["event"],
        "properties": {
            "event": {"type": "string", "format": "binary", "description": "The JSON, as a file."},
            "images": {"type": "array", "items": {"type": "string", "format": "binary"}, "maxItems": 5},
        },
        "additionalProperties": False,
    }
    example = {name: value for name, value in example.items() if name in form.model_fields}
    return json_body(form, example, **{"multipart/form-data": {"schema": files}})


def json_body(form: type[BaseModel], example: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return the form of a body in JSON, which the routes read by themselves to count its bytes."""
    schema = _inlined(form.model_json_schema())
    content = {"application/json": {"schema": schema, "example": example}, **others}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to in its place."""
    parts = schema.pop("$defs", {})

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return filled(parts[value["$ref"].rsplit("/", 1)[1]])
        return {name: filled(entry) for name, entry in value.items()}

    return filled(schema)


def plantnet_refusal(status: int, words: str) -> dict[str, Any]:
    """Return a refusal in Pl@ntNet's form."""
    schema = {
        "type": "object",
        "required": ["statusCode", "error", "message"],
        "properties": {
            "statusCode": {"type": "integer"},
            "error": {"type": "string"},
            "message": {"type": "string"},
        },
    }
    example = {
        "statusCode": status,
        "error": words,
        "message": "Species not found" if status == 404 else words,
    }
    return {"description": words, "content": {"application/json": {"schema": schema, "example": example}}}


def plantnet_body(most: int, organs: tuple[str, ...]) -> dict[str, Any]:
    """Return the form of a body in Pl@ntNet's form."""
    body = images_body(most, "Photos of one individual.")
    schema = body["requestBody"]["content"]["multipart/form-data"]["schema"]
    schema["additionalProperties"] = {"type": "string", "description": "Not looked at."}
    properties = schema["properties"]
    items = {"type": "string", "enum": list(organs)}
    words = "What each photo shows, as many as photos. If it is the same of all, the promise is for it."
    properties["organs"] = {"type": "array", "items": items, "maxItems": most, "description": words}
    return body


def plantnet_answer() -> dict[str, Any]:
    """Return an example in Pl@ntNet's form."""
    name = {
        "scientificNameWithoutAuthor": "Quercus robur",
        "scientificNameAuthorship": "L.",
        "scientificName": "Quercus robur L.",
    }
    parents = {
        level: {
            "scientificNameWithoutAuthor": parent,
            "scientificNameAuthorship": "",
            "scientificName": parent,
        }
        for level, parent in (("genus", "Quercus"), ("family", "Fagaceae"))
    }
    ids = {"gbif": {"id": "2878688"}, "powo": {"id": "304293-2"}}
    example = {
        "query": {
            "project": "all",
            "images": ["leaf.jpg"],
            "organs": ["auto"],
            "includeRelatedImages": False,
            "noReject": False,
        },
        "predictedOrgans": [],
        "language": "en",
        "preferedReferential": "trees",
        "bestMatch": "Quercus robur L.",
        "results": [{"score": 0.81, "species": {**name, **parents, "commonNames": ["English oak"]}, **ids}],
        "promise": {**_ANSWER["promise"], "level": None, "size": 20, "holds": False},
        "version": "3f9c1d2e4a5b",
        "remainingIdentificationRequests": 499,
    }
    return {"description": "The best classes.", "content": {"application/json": {"example": example}}}
