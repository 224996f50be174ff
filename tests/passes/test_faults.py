"""Faults on a cluster of three nodes: the job ends right or with a clear error, and nothing counts twice."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from shortlist import Model
from shortlist.passes.local import run_local
from shortlist.passes.on_ray import run_on_ray
from shortlist.passes.planning import find_shards
from shortlist.passes.reading import read_scores
from shortlist.passes.score import score_shards
from shortlist.passes.shards import EmbeddingShard, TarShard, hash_of_classes
from tests.commands import command, shell
from tests.passes.scoring import ROWS, Disturbed, density_model, make_embeddings, source_of
from tests.passes.test_same_bits import contents

pytestmark = pytest.mark.slow

SHARDS = 14


@pytest.fixture(scope="module")
def cluster(ray_alone):
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray_alone.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray_alone.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    model = density_model(folder / "model")
    make_embeddings(folder / "rows")
    shards = find_shards(folder / "rows", model.classes, shard_rows=100)
    score_shards(source_of(folder / "model"), shards, folder / "calm", keep=16, workers=1)
    return folder, shards


def score(world, out, what, mark, *, engine=run_on_ray, workers=3):
    folder, shards = world

    def disturbed(work, left, workers):
        return engine(Disturbed(work, str(mark), what), left, workers=workers)

    return score_shards(source_of(folder / "model"), shards, out, keep=16, workers=workers, engine=disturbed)


def check_complete(world, out):
    assert contents(out) == contents(world[0] / "calm") and len(contents(out)) == SHARDS + 1
    assert read_scores(out)["rows"] == 2 * ROWS


def test_a_worker_that_is_killed(world, cluster, tmp_path):
    score(world, tmp_path / "out", "killed", tmp_path / "mark")
    assert (tmp_path / "mark").exists()
    check_complete(world, tmp_path / "out")


@dataclass(frozen=True)
class Deadly:
    """Work that always ends its process at one shard, or before the first; each attempt is noted."""

    folder: str
    at_once: bool = False

    def __call__(self):
        def end():
            with open(f"{self.folder}/attempts", "a") as file:
                file.write("x")
            os._exit(1)

        if self.at_once:
            end()
        return lambda shard: end() if shard.name == "deadly" else shard.name


def test_a_shard_that_always_kills_its_worker_is_an_error_that_names_it(cluster, tmp_path):
    shards = [SimpleNamespace(name=name) for name in ("first", "deadly", "last")]
    with pytest.raises(RuntimeError, match=r"again and again, 4 times while they worked on deadly, perhaps"):
        list(run_on_ray(Deadly(str(tmp_path)), shards, workers=1))
    assert (tmp_path / "attempts").read_text() == "xxxx"


def test_work_that_never_starts_is_an_error(cluster, tmp_path):
    shards = [SimpleNamespace(name="first")]
    with pytest.raises(RuntimeError, match=r"again and again, before they had loaded the model"):
        list(run_on_ray(Deadly(str(tmp_path), at_once=True), shards, workers=1))
    assert (tmp_path / "attempts").read_text() == "xxxx"


def test_a_full_disk_is_an_error_and_the_next_call_goes_on(world, cluster, tmp_path):
    with pytest.raises(OSError, match="No space left on device"):
        score(world, tmp_path / "out", "full disk", tmp_path / "mark")
    assert not (tmp_path / "out" / "scores.json").exists()
    score(world, tmp_path / "out", "full disk", tmp_path / "mark")
    check_complete(world, tmp_path / "out")


@pytest.mark.parametrize("kind", ["tar", "embeddings"])
def test_a_shard_that_cannot_be_read_is_an_error_that_names_it(world, cluster, tmp_path, kind):
    """And the next call, after it was mended, keeps what was done."""
    folder, shards = world
    path = tmp_path / f"rows.{kind.replace('embeddings', 'safetensors')}"
    if kind == "tar":
        path.write_bytes(b"no tar file")
    else:
        path.write_bytes((folder / "rows" / "test.safetensors").read_bytes()[:300])
    classes = Model.load(folder / "model").classes
    broken = (
        TarShard("rows", str(path), hash_of_classes(classes))
        if kind == "tar"
        else EmbeddingShard("rows", str(path), 0, 9)
    )
    given = {"keep": 16, "workers": 3, "engine": run_on_ray}
    with pytest.raises(ValueError, match=rf"{path} cannot be read"):
        score_shards(source_of(folder / "model"), [*shards[:2], broken], tmp_path / "out", **given)
    assert not (tmp_path / "out" / "scores.json").exists()
    score_shards(source_of(folder / "model"), shards, tmp_path / "out", **given)
    check_complete(world, tmp_path / "out")


def test_a_driver_that_is_killed_and_started_again(world, cluster, tmp_path):
    folder, _ = world
    words = ["score", folder / "model", folder / "rows", "-o", tmp_path / "out", "--keep", 16]
    words += ["--shard-rows", 100, "--engine", "ray", "--address", cluster.address, "--workers", 2]
    environment = os.environ | {"RAY_LOG_TO_DRIVER": "0"}
    with subprocess.Popen(
        command(*words), env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as driver:
        until = time.monotonic() + 120
        while not list((tmp_path / "out").glob("*.parquet")) and time.monotonic() < until:
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    again = subprocess.run(command(*words), env=environment, capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    check_complete(world, tmp_path / "out")


def test_without_an_address_ray_is_started_here(world, cluster, tmp_path):
    """A cluster that others have started on this machine is left alone."""
    folder, _ = world
    words = ["score", folder / "model", folder / "rows", "-o", tmp_path / "out", "--keep", 16]
    ended = shell(*words, "--shard-rows", 100, "--engine", "ray", "--workers", 2)
    assert ended.returncode == 0, ended.stderr
    check_complete(world, tmp_path / "out")


def test_a_node_that_goes_away(world, cluster, tmp_path):
    node = cluster.add_node(num_cpus=1)

    def remove():
        until = time.monotonic() + 60
        while len(list((tmp_path / "out").glob("*.parquet"))) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        cluster.remove_node(node)

    away = threading.Thread(target=remove)
    away.start()
    score(world, tmp_path / "out", "slow", tmp_path / "mark", workers=4)
    away.join()
    check_complete(world, tmp_path / "out")


def test_a_process_of_this_machine_that_is_killed(world, tmp_path):
    with pytest.raises(RuntimeError, match="a worker process ended before its work was done"):
        score(world, tmp_path / "out", "killed", tmp_path / "mark", engine=run_local, workers=2)
    score(world, tmp_path / "out", "killed", tmp_path / "mark", engine=run_local, workers=1)
    check_complete(world, tmp_path / "out")
