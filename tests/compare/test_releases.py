"""The list of releases: the way back, damaged copies, races, and lists that somebody else made."""

import json

import pytest

from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.releases import Judged, Releases, ReleasesError
from tests.commands import run
from tests.compare.pixels import pixel_model


@pytest.fixture
def place(tmp_path) -> Releases:
    """Two releases, and a third model."""
    for number in range(3):
        pixel_model(wrong=(number,)).save(tmp_path / f"model-{number}")
    place = Releases(tmp_path / "releases")
    for number in range(2):
        place.add(tmp_path / f"model-{number}", who="ann")
    return place


def current(place: Releases) -> int | None:
    release = place.current()
    return None if release is None else release.number


def test_the_way_back_skips_what_was_rolled_back(place, tmp_path):
    """Release 2 was withdrawn: from release 3 the way back leads to release 1, which 3 came after."""
    assert place.roll_back().number == 1
    assert place.add(tmp_path / "model-2").number == 3
    assert place.roll_back().number == 1 and current(place) == 1
    with pytest.raises(ReleasesError, match="no release before"):
        place.roll_back()
    steps = [(one["number"], one["what"]) for one in place.history()]
    assert steps == [
        (1, "released"),
        (2, "released"),
        (1, "rolled back"),
        (3, "released"),
        (1, "rolled back"),
    ]


@pytest.mark.parametrize("name", ["network.safetensors", "model.json"])
def test_a_damaged_copy_does_not_become_current(name, place, tmp_path):
    """Neither by a roll-back nor by releasing the same model again, of which a copy is there."""
    damaged = place.model_path(place.all()[0]) / name
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ReleasesError, match=name):
        place.roll_back()
    with pytest.raises(ReleasesError, match=f"{name}.*remove .* and release the model again"):
        place.add(tmp_path / "model-0")
    assert current(place) == 2 and len(place.all()) == 2


def test_a_damaged_source_is_not_released(place, tmp_path):
    (tmp_path / "model-2" / "score_map.json").write_text("{}")
    with pytest.raises(ReleasesError, match=r"score_map.json is damaged"):
        place.add(tmp_path / "model-2")
    assert current(place) == 2 and len(list((place.folder / "models").iterdir())) == 2


def test_what_changed_after_it_was_judged_is_judged_again(place, tmp_path):
    first, second = place.all()
    third = Releases(tmp_path / "elsewhere").add(tmp_path / "model-2").version
    with pytest.raises(ReleasesError, match="another current release by now"):
        place.add(tmp_path / "model-2", judged=Judged(third, first.number))
    with pytest.raises(ReleasesError, match="changed after it was judged"):
        place.add(tmp_path / "model-2", judged=Judged(first.version, second.number))
    assert current(place) == 2
    assert place.add(tmp_path / "model-2", judged=Judged(third, second.number)).number == 3


def test_a_list_that_is_gone_is_no_first_release(place, tmp_path):
    """Without this, the next model would be released without a comparison."""
    (place.folder / "releases.json").unlink()
    for act in (place.current, place.roll_back, lambda: place.add(tmp_path / "model-2")):
        with pytest.raises(ReleasesError, match=r"releases.json is missing"):
            act()
    code, out, _ = run("doctor", place.folder)
    assert code == 1 and "releases.json is missing" in out


HOSTILE = {
    "no list": {"releases": None},
    "no mapping": {"releases": [3]},
    "a number that is not its place": {"number": 7},
    "a path as a version": {"version": "../../model"},
    "a list as words": {"who": ["ann"]},
    "another key": {"more": 1},
    "current and history do not fit": {"current": 1},
    "current is not there": {"current": 9},
    "a step of nothing": {"history": [{"number": 5, "what": "released"}]},
    "back from nothing": {"history": [{"number": 1, "what": "rolled back"}]},
    "no steps": {"history": "released"},
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_list_of_somebody_else_is_refused_though_its_checksum_fits(change, place):
    content, changed = read_sealed(place.folder / "releases.json"), HOSTILE[change]
    for key, value in changed.items():
        (content if key in content else content["releases"][0])[key] = value
    write_sealed(place.folder / "releases.json", content)
    with pytest.raises(ReleasesError, match="it is no list of releases"):
        place.current()
    for words in (("releases", place.folder), ("releases", place.folder, "--back"), ("doctor", place.folder)):
        code, out, err = run(*words)
        assert code != 0 and "it is no list of releases" in out + err


def test_models_that_are_not_there_are_named(place):
    gone = place.folder / "models" / place.all()[0].version
    gone.rename(place.folder / "elsewhere")
    code, out, err = run("releases", place.folder, "--json")
    assert code == 0 and json.loads(out)["current"] == 2 and str(gone) in err
    code, out, _ = run("doctor", place.folder)
    assert code == 1 and f"models/{gone.name}" in out
