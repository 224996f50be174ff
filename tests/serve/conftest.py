import pytest
from starlette.testclient import TestClient

from shortlist.serve.app import make_app
from shortlist.serve.limits import Limits
from shortlist.serve.service import Service
from tests.serve.parts import Index, tree_model


@pytest.fixture(scope="session")
def model():
    return tree_model()


@pytest.fixture
def start(model, tmp_path):
    """Start servers with options of one's own."""
    opened = []

    def begin(
        *,
        limits: Limits | None = None,
        origins=(),
        hosts=None,
        made=None,
        index="known",
        keys=None,
        **options,
    ):
        service = Service(
            made or model,
            index=Index() if index == "known" else index,
            keys=keys,
            feedback=tmp_path / "feedback",
            limits=limits,
            **options,
        )
        app = make_app(service, origins=origins, hosts=hosts)
        client = TestClient(app, raise_server_exceptions=False).__enter__()
        client.service = service
        opened.append(client)
        return client

    yield begin
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(start):
    return start()
