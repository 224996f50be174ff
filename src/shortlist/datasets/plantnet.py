"""Pl@ntNet-300K: plant species, long-tailed and hard to tell apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist._messages import examples, missing
from shortlist._names import is_latin
from shortlist._row_facts import RowFacts
from shortlist._store.json import read_json
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import assemble, files_of_classes
from shortlist.datasets.splits import Splits
from shortlist.inputs import SPLITS, names_of_class_folders

NAMES_FILE = "plantnet300K_species_id_2_name.json"
METADATA_FILE = "plantnet300K_metadata.json"
HELP = (
    "Get Pl@ntNet-300K from its page at Zenodo (record 5645731) and unpack it, so that <root>, or "
    "<root>/images, holds train/, val/ and test/, each with one folder per species id, and <root> the two "
    "JSON files of the same version."
)


def genus_of(name: str) -> str:
    """Return the genus of a scientific name, without the sign of a hybrid; "" for any other name.

    A name looks scientific if its first word has one capital letter, at the start, and the next word is an
    epithet of two or more small letters ("sp." and "cf." count).

    Example:
        >>> genus_of("Lactuca virosa L."), genus_of("× Fatshedera lizei"), genus_of("species 01")
        ('Lactuca', 'Fatshedera', '')
    """
    words = [word.lstrip("×") for word in name.replace("_", " ").split() if word not in ("×", "x", "X")]
    genus, epithet = (*words, "", "")[:2]
    is_genus = genus.isalpha() and genus[0].isupper() and genus[1:].islower()
    letters = epithet.removesuffix(".").replace("-", "")
    return genus if is_genus and len(letters) > 1 and letters.isalpha() and letters.islower() else ""


def genera_of(names: Iterable[str]) -> dict[str, str]:
    """Return the genus of each name, as :func:`genus_of`; "" for all if the names are not Latin.

    English names can have the same form. Names are Latin if half of those of this form have a Latin ending.

    Example:
        >>> genera_of(["Parus major", "Buteo buteo", "no bird"])
        {'Parus major': 'Parus', 'Buteo buteo': 'Buteo', 'no bird': ''}
        >>> genera_of(["Great tit", "Barn owl"])
        {'Great tit': '', 'Barn owl': ''}
    """
    genera = {name: genus_of(name) for name in names}
    latin = [is_latin(genus, name.replace("_", " ").split()[1:]) for name, genus in genera.items() if genus]
    return genera if 2 * sum(latin) >= len(latin) else dict.fromkeys(genera, "")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise missing(path, HELP)
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object with one entry per id, got a {type(content).__name__}")
    return content


def _check_version(path: Path, ids: set[str], folders: set[str]) -> None:
    if ids != folders:
        only_here, only_there = sorted(ids - folders), sorted(folders - ids)
        raise ValueError(
            f"{path} is of another version than the folders beside it: {len(only_here)} of its ids have no "
            f"folder ({examples(only_here) or 'none'}), {len(only_there)} folders have no entry "
            f"({examples(only_there) or 'none'}). Take the JSON file and the images from the same version."
        )


def plantnet_metadata(root: str | Path) -> dict[str, dict[str, Any]]:
    """Read the metadata of each image by its name without suffix: species_id, organ, author, license, split.

    Raises:
        FileNotFoundError: ``plantnet300K_metadata.json`` is not in ``root``.
        ValueError: Its species are not those of the folders: it belongs to another version.
    """
    root = Path(root)
    path = root / METADATA_FILE
    content = _read_json(path)
    try:
        species = {str(entry["species_id"]) for entry in content.values()}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} must hold an object with a species_id per image: {error!r}") from error
    _check_version(path, species, set(names_of_class_folders(root, _part_folders(root))))
    return content


def _facts(paths: Sequence[str], said: Mapping[str, Any]) -> RowFacts | None:
    """Return observation and organ of each image; nothing for images that the metadata do not name."""
    entries = [said.get(Path(path).stem, {}) for path in paths]
    return RowFacts.of_columns(
        {"observation": [e.get("obs_id") for e in entries], "organ": [e.get("organ") for e in entries]}
    )


def _part_folders(root: Path) -> dict[str, Path]:
    """Find the folders of the parts in ``root`` or in its folder ``images``, as in the archive."""
    base = root / "images" if (root / "images" / "train").is_dir() else root
    for part in SPLITS:
        if not (base / part).is_dir():
            raise missing(base / part, HELP)
    return {part: base / part for part in SPLITS}


def plantnet300k(root: str | Path, *, check_metadata: bool = False, **image_options: Any) -> Splits:
    """Open Pl@ntNet-300K: 306,146 images of 1,081 plant species in 303 genera.

    On disk: ``<root>/train/<species id>/``, ``<root>/val/<species id>/``, ``<root>/test/<species id>/`` (or
    these in ``<root>/images``) and ``<root>/plantnet300K_species_id_2_name.json``;
    ``plantnet300K_metadata.json``, if it is there, says observation and organ of each image. The class index
    is the place of the species id among all ids, sorted as text (the order of published models); the class
    table has ids, names and the level ``"genus"`` (see :func:`genus_of`).

    Args:
        root: Unpacked folder of the data set.
        check_metadata: Whether to require also a metadata file of the same version (see
            :func:`plantnet_metadata`).
        **image_options: ``image_size``, ``train_transform``, ``eval_transform``, ``on_error``, ``verify`` as
            for :func:`~shortlist.datasets.folders.image_folder`.

    Raises:
        FileNotFoundError: A folder or file is missing; the message says where to get it.
        ValueError: The ids of a JSON file are not those of the folders: it is of another version.
    """
    root = Path(root)
    folders = _part_folders(root)
    ids = names_of_class_folders(root, folders)
    names = {str(key): str(name) for key, name in _read_json(root / NAMES_FILE).items()}
    _check_version(root / NAMES_FILE, set(names), set(ids))
    table = ClassTable([names[i] for i in ids], ids, parents={"genus": [genus_of(names[i]) for i in ids]})
    files = files_of_classes(root, folders, table, HELP)
    if check_metadata or (root / METADATA_FILE).is_file():
        said = plantnet_metadata(root) if check_metadata else _read_json(root / METADATA_FILE)
        files = {part: replace(some, facts=_facts(some.paths, said)) for part, some in files.items()}
    return assemble(files, table, where=root, **image_options)
