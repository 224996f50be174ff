"""Write an app: a folder of static files that gives the lists of a model in a browser, without a server."""

import hashlib
import json
import re
import shutil
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from shortlist._store.files import replacing_folder
from shortlist._store.json import read_json, strict_json
from shortlist.app.icons import draw_icons, icon_entries
from shortlist.app.known import write_known
from shortlist.app.runtime import copy_runtime
from shortlist.class_table import ClassTable
from shortlist.index import ImageIndex
from shortlist.model import Model
from shortlist.place import Place
from shortlist.sentences import LANGUAGES, speaking, strings
from shortlist.serve import Service, page_text, static_files

FORMAT = "shortlist lists 1"
"""Format of the exported models that an app is made from."""
_ADDRESS = re.compile(r"https?://([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+(:\d{1,5})?(/[\w.~/-]*)?")
"""Addresses that a policy of security can name: it knows no IPv6."""
_ANY_SERVER = "https: http://localhost:* http://127.0.0.1:*"  # where a person may have a server
_OF_SERVERS = {"review.js"}  # what the page of an app never loads
_SAID = ("promise", "number", "next_photo")  # sentences that the engine says


def write_app(
    bundle: str | Path,
    out: str | Path,
    *,
    model: Model,
    source: str | Path | None = None,
    index: str | Path | None = None,
    index_model: Model | None = None,
    thumbnails: int = 3,
    places: Sequence[str | Path] = (),
    runtime: str | Path | None = None,
    kind: str = "",
    server: str = "",
) -> None:
    """Write an app from an exported model, whole or not at all.

    Args:
        bundle: Folder of the exported model, with ``model.onnx`` and ``lists.json``.
        out: Folder of the app, which must not exist.
        model: The model that was exported, with its calibration rows and predictors.
        source: Folder of the run or model that it comes from, for its card; ``None`` if it is not saved.
        index: Folder of an index of known images, some of which the app has; none if ``None``.
        index_model: Model that the index was made with, such as before its weights were rounded; ``model`` if
            ``None``.
        thumbnails: Number of known images of each class; 0 for none.
        places: Files of places that a person can choose; see :meth:`~shortlist.place.Place.from_file`.
        runtime: Folder with the files of onnxruntime-web; they are fetched by npm if ``None``.
        kind: What the model knows, such as ``"a plant"``; empty if it is not said.
        server: Address to which people's answers can be sent; people type one if it is empty.

    Raises:
        ValueError: If the model takes no pictures, or an argument cannot be used; the message names it.
        FileExistsError: If ``out`` exists.
    """
    bundle, lists = Path(bundle), _read_lists(Path(bundle))
    if server and not _ADDRESS.fullmatch(server):
        raise ValueError(f"server must be an address such as https://plants.example.org, got {server[:80]!r}")
    if thumbnails < 0:
        raise ValueError(f"thumbnails must be >= 0, got {thumbnails}")
    chosen = _read_places(places)
    opened_index = None
    if index is not None and thumbnails:
        opened_index = ImageIndex.open(index, model=model if index_model is None else index_model)
    service = Service(model, source=source, index=opened_index, places=chosen, kind=kind)
    try:
        with replacing_folder(out) as folder:
            _copy_model(bundle, lists, folder)
            copy_runtime(folder / "runtime", None if runtime is None else Path(runtime))
            if opened_index is not None:
                write_known(folder, opened_index, thumbnails)
            draw_icons(folder)
            _write_facts(folder, service, lists, has_known=opened_index is not None)
            _write_page(folder, service, lists["version"], server, thumbnails)
    finally:
        service.close()


def _read_lists(bundle: Path) -> dict[str, Any]:
    lists = read_json(bundle / "lists.json")
    if lists.get("format") != FORMAT:
        raise ValueError(
            f"{bundle / 'lists.json'} must have the format {FORMAT!r}, got {lists.get('format')!r}"
        )
    if lists["input"]["name"] != "picture":
        raise ValueError("the model must take pictures to make an app, got one that takes prepared inputs")
    return lists


def _read_places(paths: Sequence[str | Path]) -> list[Place]:
    chosen: dict[str, Place] = {}
    for path in paths:
        place = Place.from_file(path)
        if place.name in chosen:
            raise ValueError(f"places must have different names, got {place.name!r} twice")
        chosen[place.name] = place
    return list(chosen.values())


def _copy_model(bundle: Path, lists: Mapping[str, Any], folder: Path) -> None:
    (folder / "model").mkdir()
    for name in ("model.onnx", "lists.json", *(["rows.safetensors"] if lists["rows"] else [])):
        shutil.copyfile(bundle / name, folder / "model" / name)


def _write_facts(folder: Path, service: Service, lists: Mapping[str, Any], *, has_known: bool) -> None:
    """Write what the engine needs beside the exported model: places, names to search, sentences."""
    table = service.model.classes
    card = {**service.card, "version": lists["version"]}
    content = {
        "name": card["name"],
        "version": lists["version"],
        "card": card,
        "novelty": card["novelty"],
        "known": has_known,
        "places": [_place_form(place, match, form) for (place, match), form in _places(service)],
        "authors": [author for _, author in table.scientific_names],
        "search": [" ".join(_searched(table, index)) for index in range(len(table))],
    }
    words = {}
    for language in LANGUAGES:
        with speaking(language):
            said = strings()
        page = {name: said["page"][name] for name in ("levels", "photo_facts")}
        words[language] = {**{name: said[name] for name in _SAID}, "page": page}
    for name, values in (("app.json", content), ("words.json", words), ("model.json", card)):
        (folder / name).write_text(strict_json(values), encoding="utf-8")


def _places(service: Service) -> Any:
    return zip(service.places, service.places.forms(), strict=True)


def _place_form(place: Place, match: Any, form: Mapping[str, Any]) -> dict[str, Any]:
    weights = [[number, weight] for number, weight in enumerate(match.vector.tolist()) if weight]
    names = ("name", "title", "titles", "unknown", "unknown_names")
    more = {"shown": place.shown, "matched": match.matched, "weights": weights}
    return {name: form[name] for name in names} | more


def _searched(table: ClassTable, index: int) -> list[str]:
    """Return all that a class may be searched by, as a server does."""
    texts = [table.names[index], *table.scientific_names[index], table.ids[index]]
    texts += [column[index] for column in table.parents.values()]
    texts += [name for column in table.common_names.values() for name in column[index]]
    return texts + (list(table.synonyms[index]) if table.synonyms else [])


def _write_page(folder: Path, service: Service, version: str, server: str, thumbnails: int) -> None:
    """Write the page in each language, its files, the manifest, and what keeps them without a network."""
    origin = server and "/".join(server.split("/")[:3])
    policy = (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
        f"img-src 'self' blob: data:; connect-src 'self' {origin or _ANY_SERVER}; manifest-src 'self'; "
        "form-action 'none'; base-uri 'none'"
    )
    facts = {"version": version, "server": server, "related_images": min(6, thumbnails)}
    for language in LANGUAGES:
        text = page_text(service, language, {"policy": policy, "facts": facts})
        (folder / f"{language}.html").write_text(text, encoding="utf-8")
    shutil.copyfile(folder / "en.html", folder / "index.html")
    for name, (content, _) in static_files().items():
        if name not in _OF_SERVERS:
            (folder / name).write_bytes(content)
    package = files("shortlist.app")
    (folder / "engine").mkdir()
    for part, place in (("engine", folder / "engine"), ("shell", folder)):
        for entry in package.joinpath(part).iterdir():
            if entry.name.endswith(".js"):
                (place / entry.name).write_bytes(entry.read_bytes())
    _write_manifest(folder, str(service.card["name"]))
    _write_keeper(folder)


def _write_manifest(folder: Path, name: str) -> None:
    """Write the manifest by which a phone installs the app."""
    content = {
        "id": "./",
        "name": name,
        "short_name": name[:12],
        "start_url": "./",
        "scope": "./",
        "display": "standalone",
        "background_color": "#f6f7f2",
        "theme_color": "#14786a",
        "icons": icon_entries(),
    }
    (folder / "manifest.json").write_text(strict_json(content, indent=1), encoding="utf-8")


def _write_keeper(folder: Path) -> None:
    """Fill in the service worker the hash of each file, and a version that changes with any of them."""
    keeper = folder / "sw.js"
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names.remove(keeper.name)
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).digest() for name in names}
    contents = json.dumps({name: f"sha256-{b64encode(value).decode()}" for name, value in hashes.items()})
    version = hashlib.sha256(contents.encode()).hexdigest()[:16]
    text = keeper.read_text(encoding="utf-8")
    filled = {"{{ version }}": version, "{{ files }}": contents}
    for place, value in filled.items():
        text = text.replace(place, value)
    keeper.write_text(text, encoding="utf-8")
