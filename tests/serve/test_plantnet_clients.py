"""Pl@ntNet's own clients against a server of ours; they are not part of this repository.

Get the repository ``my.plantnet`` of ``plantnet``, run ``npm install`` in its ``examples/post/js`` and
``benchmark/js``, and name it: ``PLANTNET_EXAMPLES=my.plantnet pytest tests/serve/test_plantnet_clients.py``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import TREES_WITH_AUTHORS, Index, tree_model
from tests.serve.running import running

GIVEN = os.environ.get("PLANTNET_EXAMPLES")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(GIVEN is None, reason="PLANTNET_EXAMPLES does not say where the clients are"),
]
THEIRS, KEY = "https://my-api.plantnet.org", "0123456789abcdefKEY"


@pytest.fixture
def address(tmp_path):
    (tmp_path / "keys").write_text(KEY)
    parts = {"index": Index(), "keys": tmp_path / "keys", "feedback": tmp_path / "feedback"}
    service = Service(tree_model(TREES_WITH_AUTHORS), **parts)
    with running(make_app(service)) as found:
        yield found


@pytest.fixture
def clients(tmp_path):
    assert GIVEN is not None
    return Path(shutil.copytree(GIVEN, tmp_path / "clients", ignore=shutil.ignore_patterns(".git")))


def output(*command: str, place: Path) -> str:
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL
    ).stdout


def test_the_client_in_python(clients, address):
    script = clients / "examples" / "post" / "run.py"
    text = script.read_text().replace(THEIRS, address)
    assert "'statusCode': 401" in run_python(script, text)
    found = run_python(script, text.replace('API_KEY = ""', f'API_KEY = "{KEY}"'))
    assert found.startswith("200") and "'bestMatch'" in found and "'organs': ['flower', 'leaf']" in found


def run_python(script: Path, text: str) -> str:
    script.write_text(text)
    return output(sys.executable, script.name, place=script.parent)


def test_the_client_in_javascript(clients, address):
    script = clients / "examples" / "post" / "js" / "run.js"
    text = script.read_text().replace(THEIRS, address).replace("your-private-api-key", KEY)
    script.write_text(text.replace("'../data", "'../../data"))
    found = output("node", script.name, place=script.parent)
    assert found.startswith("status 200") and "bestMatch" in found


def test_the_client_that_measures_folders(clients, address, tmp_path):
    place, photos = clients / "benchmark" / "js", tmp_path / "photos" / "Fagus_sylvatica"
    shutil.copytree(clients / "examples" / "data", photos / "one plant")
    shutil.copy(photos / "one plant" / "image_1.jpeg", photos)
    about = json.loads((place / "env.example.json").read_text())
    about |= {"apiKey": KEY, "url": f"{address}/v2/identify", "mainFolderPath": str(photos.parent)}
    (place / "env.json").write_text(json.dumps({**about, "outputFilesPath": str(tmp_path)}))
    assert output("node", "benchmark.js", place=place).count("OK 200") == 2
    [table] = tmp_path.glob("*.csv")
    rows = [line.split(";") for line in table.read_text().splitlines()]
    assert [row[2] for row in rows[1:]] == ["1", "2"] and all("Fagus sylvatica L." in row for row in rows[1:])
    rank, name, score = rows[0].index("rank"), "Fagus sylvatica L.", rows[0].index("match score")
    for row in rows[1:]:  # it finds the class of the folder, whose name has no author
        place = (row.index(name) - score - 1) // 2
        assert row[rank] == str(place + 1) and row[score] == row[row.index(name) + 1]
