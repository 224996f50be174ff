"""A proxy before the server: whose address counts for the limit of rate."""

from functools import partial

import pytest
from starlette.testclient import TestClient

from shortlist.serve.app import make_app
from shortlist.serve.limits import Limits
from shortlist.serve.server import check_proxies, make_config
from shortlist.serve.service import Service
from tests.serve.parts import files, png


def statuses(model, proxies, peer, clients):
    """What requests of a peer get that names a client in each; a client may ask once a minute."""
    config = make_config(make_app(Service(model, limits=Limits(rate=1))), proxies=proxies)
    config.load()
    with TestClient(config.loaded_app, client=(peer, 1), base_url="http://127.0.0.1") as client:
        ask = partial(client.post, "/v1/identify", files=files(png(1)))
        return [ask(headers={"x-forwarded-for": name}).status_code for name in clients]


@pytest.mark.parametrize(
    ("proxies", "peer", "expected"),
    [
        (["10.0.0.0/8"], "10.1.2.3", [200, 429, 200]),  # each client has a rate of its own
        (["10.0.0.0/8"], "11.1.2.3", [200, 429, 429]),  # a stranger who names clients is one client
        ([], "10.1.2.3", [200, 429, 429]),
    ],
)
def test_the_limit_of_rate_is_of_clients_that_a_proxy_names(model, proxies, peer, expected):
    assert statuses(model, proxies, peer, ["192.0.2.1", "192.0.2.1", "192.0.2.2"]) == expected


def test_a_client_cannot_hide_behind_addresses_that_he_made_up(model):
    """The proxy adds the address that it saw at the end: what the client wrote before it is not believed."""
    names = ["192.0.2.1", "198.51.100.7, 192.0.2.1", "203.0.113.9, 192.0.2.1"]
    assert statuses(model, ["10.1.2.3"], "10.1.2.3", names) == [200, 429, 429]


@pytest.mark.errors
@pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/8", "0.0.0.0/0", "::/0"])
def test_a_proxy_is_an_address(proxy):
    with pytest.raises(ValueError, match=r"proxies must .* got '" + proxy.replace("*", r"\*")):
        check_proxies(["127.0.0.1", proxy])
