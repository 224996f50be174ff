"""What goes wrong while workers start is told, and a worker with another model writes nothing."""

import shutil
from dataclasses import dataclass

import pytest

from shortlist.passes.local import run_local
from shortlist.passes.on_ray import run_on_ray
from shortlist.passes.planning import find_shards
from shortlist.passes.score import score_shards
from shortlist.predictors import TopK
from tests.passes.scoring import density_model, make_embeddings, source_of


def other_network(folder):
    density_model(folder, adjusted=True)


def other_predictors(folder):
    model = density_model(folder)
    shutil.rmtree(folder)
    model.predictors["top5"] = TopK(4)
    model.save(folder)


@pytest.mark.errors
@pytest.mark.parametrize("change", [other_network, other_predictors])
@pytest.mark.parametrize(
    ("engine", "workers"),
    [
        (run_local, 1),
        pytest.param(run_local, 2, marks=pytest.mark.slow),
        pytest.param(run_on_ray, 2, marks=pytest.mark.slow),
    ],
)
def test_a_worker_with_another_model_is_refused(tmp_path, request, change, engine, workers):
    """As on a machine of a cluster that has another model at the same path."""
    if engine is run_on_ray:
        request.getfixturevalue("ray_alone")
    model = density_model(tmp_path / "model")
    shards = find_shards(make_embeddings(tmp_path / "rows"), model.classes, shard_rows=500)

    def after_a_change(work, left, workers):
        shutil.rmtree(tmp_path / "model")
        change(tmp_path / "model")
        return engine(work, left, workers=workers)

    with pytest.raises(
        ValueError, match=r"a worker has another model than the command: .*model must give the same"
    ):
        score_shards(
            source_of(tmp_path / "model"), shards, tmp_path / "out", workers=workers, engine=after_a_change
        )
    assert not list((tmp_path / "out").glob("*.parquet"))
    assert not (tmp_path / "out" / "scores.json").exists()


@dataclass(frozen=True)
class NeverReady:
    """Work that cannot be begun."""

    words: str

    def __call__(self):
        raise ValueError(self.words)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [run_local, run_on_ray])
def test_why_workers_cannot_begin_is_the_error_of_the_call(request, engine):
    if engine is run_on_ray:
        request.getfixturevalue("ray_alone")
    with pytest.raises(ValueError, match=r"^the folder is not here$"):
        list(engine(NeverReady("the folder is not here"), range(3), workers=2))
