"""Apps of models that need a person's own code: joined ones, and networks of one's own."""

import sys

import pytest

from shortlist.model import Choice, Model
from tests.app.sites import runtime_or_skip, served
from tests.app.test_browser import names, opened, upload
from tests.cli.test_own_networks import here, place  # noqa: F401 - fixtures
from tests.commands import run
from tests.passes.test_join import BACKBONE, of_own_code, photos, two_names  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow


def lists_are_those_of(model, browser, site, files):
    with served(site) as address, opened(browser, address) as page:
        for file in files:
            upload(page, file.read_bytes())
            wanted = [one.name for one in model.short_lists([file], Choice(top=2))[0] if one.in_set]
            page.locator("#kind-exactly").check()
            page.locator("#slider").fill("1")
            page.wait_for_function("() => document.querySelectorAll('li.candidate').length === 2")
            assert names(page) == wanted
            yield page
            page.locator("#again").click()


def test_a_joined_model_is_an_app_with_its_index(browser, of_own_code, photos, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "path", list(sys.path))
    runtime, joined = runtime_or_skip(tmp_path / "runtime"), tmp_path / "joined"
    commands = [
        ("join", of_own_code, "-o", joined, "--allow-code"),
        ("index", joined, "--images", photos / "train", "--workers", 1, "--network", BACKBONE),
        (
            "export",
            joined,
            "-o",
            tmp_path / "app",
            "--format",
            "app",
            "--runtime",
            runtime,
            "--network",
            BACKBONE,
        ),
    ]
    for command in commands:
        code, _, err = run(*command)
        assert code == 0, err
    model, files = Model.load(joined, network=two_names()), sorted((photos / "test").rglob("*.png"))[::5]
    for page in lists_are_those_of(model, browser, tmp_path / "app", files):
        images = page.locator("li.candidate img")
        assert images.count() >= 4  # known ones of both classes
        page.wait_for_function(
            "() => [...document.querySelectorAll('li.candidate img')].every((one) => one.naturalWidth > 0)"
        )


def test_a_network_of_ones_own_is_an_app(browser, here, tmp_path):  # noqa: F811
    runtime, own = runtime_or_skip(tmp_path / "runtime"), ("--network", "my_networks:make")
    arguments = ("export", "model-make", "-o", tmp_path / "app", "--format", "app", "--runtime", runtime)
    code, _, err = run(*arguments)
    assert code == 2 and "--network MODULE:FUNCTION" in err and not (tmp_path / "app").exists()
    code, _, err = run(*arguments, *own)
    assert code == 0, err
    import my_networks

    model = Model.load("model-make", network=my_networks.make())
    for _ in lists_are_those_of(model, browser, tmp_path / "app", sorted(here.rglob("test/*/*.png"))[::4]):
        pass
