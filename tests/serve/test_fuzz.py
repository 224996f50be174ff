"""The API against requests that are made up from its own description, over a real connection."""

import pytest

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import (  # noqa: E402
    HealthCheck,
    given,
    settings,
    strategies as st,
)
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

from shortlist.serve.app import make_app  # noqa: E402
from shortlist.serve.limits import Limits  # noqa: E402
from shortlist.serve.service import Service  # noqa: E402
from tests.serve.parts import Index, png, tree_model  # noqa: E402
from tests.serve.running import running  # noqa: E402

IMAGES = (png(1), png(2, (30, 40)), b"", b"text", png(3)[:50])
ROUTES = (
    ("POST", "/v1/identify"),
    ("POST", "/v1/identify/batch"),
    ("GET", "/v1/classes"),
    ("GET", "/v1/classes/{id}"),
    ("GET", "/v1/model"),
    ("GET", "/v1/places"),
    ("GET", "/v1/names"),
    ("GET", "/v1/ladder"),
    ("GET", "/v1/images/{id}"),
    ("POST", "/v1/feedback"),
    ("GET", "/v1/feedback/stats"),
    ("POST", "/v1/feedback/deletions"),
    ("POST", "/v1/observations"),
    ("GET", "/v1/observations/{id}"),
    ("GET", "/v1/observations/{id}/photos/{number}"),
    ("POST", "/v1/observations/{id}/votes"),
    ("GET", "/v1/review/next"),
    ("POST", "/v2/identify/{project}"),
    ("GET", "/v2/identify/{project}"),
    ("GET", "/v2/projects"),
    ("GET", "/v2/projects/{project}/species"),
    ("GET", "/v2/species"),
    ("GET", "/v2/languages"),
    ("GET", "/v2/quota"),
    ("GET", "/v2/quota/daily"),
    ("GET", "/v2/_status"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    log = tmp_path_factory.mktemp("fuzz") / "feedback"
    service = Service(tree_model(), index=Index(), feedback=log, limits=Limits(image_bytes=10_000))
    with running(make_app(service)) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda part: part)
def test_no_request_makes_the_server_fail(schema, method, path):
    operation = schema[path][method]

    @given(case=operation.as_strategy(), images=st.lists(st.sampled_from(IMAGES), min_size=1, max_size=3))
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def every_request(case, images):
        in_a_form = case.media_type == "multipart/form-data"
        if in_a_form and isinstance(case.body, dict) and "images" in case.body:
            case.body["images"] = images  # bytes that are made up are never an image
        response = case.call()
        assert response.status_code < 500, response.text
        # a description cannot say that two parameters exclude each other, nor what is an image
        case.validate_response(response, excluded_checks=[positive_data_acceptance])

    every_request()


@pytest.mark.slow
def test_all_routes_are_tried(schema):
    known = {(method.upper(), path) for path, methods in schema.items() for method in methods}
    assert known == set(ROUTES)
