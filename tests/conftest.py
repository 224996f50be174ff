import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from tests.postgres import location, postgres

__all__ = ["location", "postgres"]  # fixtures
GOLDEN = Path(__file__).parent / "golden"

# on the small tensors of the tests a second thread only waits; processes that tests start follow
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

settings.register_profile("shortlist", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("shortlist")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Golden:
    """A file of reference numbers; inputs come as float64 (or int64) tensors."""

    def __init__(self, name: str) -> None:
        data = json.loads((GOLDEN / f"{name}.json").read_text())
        self.cases = data["cases"]
        self.shared = {key: tensor(value) for key, value in data["shared_inputs"].items()}

    def inputs(self, case: dict) -> dict[str, torch.Tensor]:
        return {key: self.shared[name].clone() for key, name in case["inputs"].items()}


def tensor(value) -> torch.Tensor:
    result = torch.tensor(value, dtype=torch.float64)
    return result if torch.tensor(value).is_floating_point() else result.long()


@pytest.fixture(scope="session")
def golden():
    loaded: dict[str, Golden] = {}

    def load(name: str) -> Golden:
        if name not in loaded:
            loaded[name] = Golden(name)
        return loaded[name]

    return load


VISION = Path(sys.prefix) / "vision"  # where the Makefile puts the vision extra


def vision_library(name: str):
    """Import torchvision or timm, or skip; with a torch that lacks two operators, declare them first."""
    if VISION.is_dir() and str(VISION) not in sys.path:
        sys.path.append(str(VISION))
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        for operator in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
    return pytest.importorskip(name)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; without one, the tests are left out."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: `apt-get install chromium` brings one")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def ray_alone(tmp_path_factory):
    """Ray, which the other test processes do not start meanwhile: each start takes all cores for seconds."""
    ray = pytest.importorskip("ray")
    # the folder that all test processes of this run share
    with FileLock(tmp_path_factory.getbasetemp().parent / "ray.lock"):
        yield ray


@pytest.fixture(scope="module")
def ray_here(ray_alone):
    """Ray in this process, with three workers."""
    ray_alone.init(
        address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    yield
    ray_alone.shutdown()
