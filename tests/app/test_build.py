"""What an app is written from, and what is refused before anything is written."""

import base64
import hashlib
import io
import json
import re
import tarfile
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from shortlist import ClassTable
from shortlist.app import write_app
from shortlist.app.runtime import FILES, copy_runtime
from shortlist.index import ImageIndexError
from shortlist.model import round_weights
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.sentences import LANGUAGES
from tests.index.small import make_rows, projection_model, start
from tests.serve.parts import TREES, tree_model

HOSTILE = ("</script><img src=x onerror=alert(1)>", "a\u2028b", "__proto__", "{{ 7 * 7 }}", '"><b>', "${x}")


def a_bundle(folder, **changes):
    """The files of an exported model, as far as they are only copied."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"onnx")
    (folder / "rows.safetensors").write_bytes(b"rows")
    lists = {"format": "shortlist lists 1", "version": "0123456789ab", "input": {"name": "picture"}}
    (folder / "lists.json").write_text(json.dumps(lists | {"rows": {"file": "rows.safetensors"}} | changes))
    return folder


def a_runtime(folder):
    (folder / "dist").mkdir(parents=True)
    for name in FILES:
        (folder / "dist" / name).write_text(name)
    return folder


def written(tmp_path, model=None, **options):
    bundle, runtime = a_bundle(tmp_path / "bundle"), a_runtime(tmp_path / "runtime")
    model = tree_model() if model is None else model
    write_app(bundle, tmp_path / "app", model=model, **{"runtime": runtime} | options)
    return tmp_path / "app"


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_an_app_is_whole_and_installable(tmp_path):
    folder = written(tmp_path)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {f"{language}.html" for language in LANGUAGES} | {"index.html", "page.js", "send.js"} <= files
    keeper = (folder / "sw.js").read_text()
    hashes = json.loads(re.search(r"FILES = (\{.*\})", keeper)[1])
    assert set(hashes) == files - {"sw.js"}
    digest = hashlib.sha256((folder / "page.js").read_bytes()).digest()
    assert hashes["page.js"] == "sha256-" + base64.b64encode(digest).decode()
    manifest = json.loads((folder / "manifest.json").read_text())
    sizes = {icon["sizes"]: icon for icon in manifest["icons"]}
    assert {"192x192", "512x512"} <= sizes.keys() and manifest["display"] == "standalone"
    for icon in manifest["icons"]:
        with Image.open(folder / icon["src"]) as picture:
            assert "x".join(map(str, picture.size)) == icon["sizes"]
    assert {icon["purpose"] for icon in manifest["icons"]} == {"any", "maskable"}
    page = (folder / "fr.html").read_text()
    assert "Cette application" in page and '"/static' not in page
    # what the page loads is there
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert set(links) <= files


def test_each_script_of_an_app_is_loaded(tmp_path):
    folder = written(tmp_path)
    loaded, waiting = set(), {folder / "page.js"}
    while waiting:
        script = waiting.pop()
        loaded.add(script)
        if script.parent.name != "runtime":  # of which only the names are here
            paths = re.findall(r'(?:from|URL\(|import\(?) ?"(\.[^"]+\.js)"', script.read_text())
            waiting |= {(script.parent / path).resolve() for path in paths} - loaded
    assert {path.resolve() for path in folder.rglob("*.js") if path.parent.name != "runtime"} == {
        path for path in loaded if path.parent.name != "runtime"
    }


def test_the_version_follows_from_the_files(tmp_path):
    def version(name, **options):
        (tmp_path / name).mkdir()
        return re.search(r'VERSION = "(\w+)"', (written(tmp_path / name, **options) / "sw.js").read_text())[1]

    first = version("first")
    assert version("again") == first
    assert version("other", server="https://plants.example.org/api") != first


def test_the_policy_of_security_names_what_the_app_needs_alone(tmp_path):
    page = (written(tmp_path, server="https://plants.example.org:8443/api") / "index.html").read_text()
    [policy] = [a["content"] for tag, a in Elements(page).found if a.get("http-equiv")]
    rules = {words.split()[0]: words.split()[1:] for words in policy.split("; ")}
    assert rules["default-src"] == ["'none'"] and rules["script-src"] == ["'self'", "'wasm-unsafe-eval'"]
    assert rules["connect-src"] == ["'self'", "https://plants.example.org:8443"]
    assert "unsafe-inline" not in policy and "'unsafe-eval'" not in policy


def test_texts_of_strangers_stay_texts(tmp_path):
    plain = written(tmp_path)
    table = ClassTable(names=HOSTILE, ids=HOSTILE, counts=TREES.counts, parents={HOSTILE[0]: HOSTILE})
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / f"{HOSTILE[4]}.csv").write_text(f"id\n{HOSTILE[2]}\n")
    model = tree_model(table, about={"name": HOSTILE[0]})
    places = [tmp_path / "hostile" / f"{HOSTILE[4]}.csv"]
    folder = written(tmp_path / "hostile", model, places=places, kind=HOSTILE[4])
    for language in LANGUAGES:
        tags = [tag for tag, _ in Elements((folder / f"{language}.html").read_text()).found]
        usual = [tag for tag, _ in Elements((plain / f"{language}.html").read_text()).found]
        # the choice of a place is the only part that is more
        assert {
            tag: tags.count(tag) - usual.count(tag)
            for tag in {*tags, *usual}
            if tags.count(tag) != usual.count(tag)
        } == {"p": 1, "label": 1, "select": 1, "option": 2}
    assert json.loads((folder / "manifest.json").read_text())["name"] == HOSTILE[0]
    assert json.loads((folder / "app.json").read_text())["name"] == HOSTILE[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"server": "https://a.example; script-src *"}, "server"),
        ({"server": "javascript:alert(1)"}, "server"),
        ({"server": "https://[::1]:8000"}, "server"),  # the policy of the page cannot name it
        ({"server": "https://plants..org"}, "server"),
        ({"thumbnails": -1}, "thumbnails"),
        ({"runtime": "nowhere"}, "--runtime"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        written(tmp_path, **options)
    assert not (tmp_path / "app").exists()


def test_a_rounded_model_has_the_index_of_its_run(tmp_path):
    model, rounded = projection_model(), projection_model()
    rounded = replace(rounded, score_map=ScoreMap(6, contains=PriorRecord.balanced(6)))
    round_weights(rounded.network, "int8")
    rows = make_rows(20, 1)
    index = start(tmp_path / "index", rows, model=model)
    with pytest.raises(ImageIndexError, match="another model"):
        written(tmp_path, rounded, index=index)
    (tmp_path / "small").mkdir()
    folder = written(tmp_path / "small", rounded, index=index, index_model=model)
    assert len(json.loads((folder / "known.json").read_text())["images"]) == sum(
        min(3, count) for count in Counter(rows.classes.tolist()).values()
    )


def test_what_is_no_exported_model_of_pictures_is_refused(tmp_path):
    for name, change in (("a", {"format": "other"}), ("b", {"input": {"name": "inputs"}})):
        with pytest.raises(ValueError, match=r"format|pictures"):
            write_app(a_bundle(tmp_path / name, **change), tmp_path / "app", model=tree_model())


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        written(tmp_path)
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["mine"]


def test_places_need_different_names(tmp_path):
    paths = [tmp_path / folder / "here.csv" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("id\nq1\n")
    with pytest.raises(ValueError, match="here"):
        written(tmp_path, places=paths)


def test_without_npm_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"npm.*--runtime"):
        copy_runtime(tmp_path / "runtime")


def test_another_package_than_the_known_one_is_refused(tmp_path, monkeypatch):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as package:
        package.addfile(tarfile.TarInfo("package/dist/ort.wasm.min.mjs"))
    (tmp_path / "other.tgz").write_bytes(archive.getvalue())
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\n/bin/cp {tmp_path}/other.tgz onnxruntime-web-1.30.0.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="another onnxruntime-web"):
        copy_runtime(tmp_path / "runtime")
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    with pytest.raises(ValueError, match=r"no network.*--runtime"):
        copy_runtime(tmp_path / "again")
