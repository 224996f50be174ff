"""Darwin Core archives: observations with names, places and photos, in the form that GBIF and others read."""

import csv
import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from shortlist._store.files import replacing
from shortlist.feedback.location import Location

_DWC, _DC = "http://rs.tdwg.org/dwc/terms/", "http://purl.org/dc/terms/"
_TEXT = "http://rs.tdwg.org/dwc/text/"
_CORE, _MEDIA = f"{_DWC}Occurrence", "http://rs.gbif.org/terms/1.0/Multimedia"
_EML = "eml://ecoinformatics.org/eml-2.1.1"
_CC = "http://creativecommons.org"
LICENSES = {
    "CC0 1.0": f"{_CC}/publicdomain/zero/1.0/legalcode",
    "CC BY 4.0": f"{_CC}/licenses/by/4.0/legalcode",
    "CC BY-NC 4.0": f"{_CC}/licenses/by-nc/4.0/legalcode",
}
"""Addresses of the licenses that GBIF takes, by the names that people choose from; the strictest is last."""
_LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus")
_TIME = (1980, 1, 1, 0, 0, 0)  # of each file: equal observations make equal bytes


@dataclass(frozen=True)
class Media:
    """A photo of an occurrence.

    Args:
        address: Where it is: a web address, or its path inside the archive.
        format: Its media type, such as ``image/jpeg``.
        file: File to put into the archive at ``address``; ``None`` if it is elsewhere.
        license: Its license, if it is not that of the record.
        creator: Who took it, if it is not who saw the object.
    """

    address: str
    format: str
    file: Path | None = None
    license: str = ""
    creator: str = ""


@dataclass(frozen=True)
class Occurrence:
    """One observation, as an archive tells it.

    Args:
        id: Name of the observation, unique in the archive.
        name: Scientific name, with or without its author.
        author: Author of the name.
        taxon: Id of the class.
        parents: Names by level, such as ``family``; levels that Darwin Core lacks are left out.
        date: Day or time in ISO 8601.
        location: Where it was seen, as coarsely as the person wants.
        recorded_by: Who saw it.
        license: License of the record and its photos, a name of ``LICENSES`` or another text.
        remarks: What the name rests on: the list that was shown, its promise, the votes.
        is_verified: Whether people agree on the name.
        media: The photos.
    """

    id: str
    name: str
    author: str = ""
    taxon: str = ""
    parents: dict[str, str] = field(default_factory=dict)
    date: str = ""
    location: Location | None = None
    recorded_by: str = ""
    license: str = ""
    remarks: str = ""
    is_verified: bool = False
    media: Sequence[Media] = ()


_Columns = dict[str, Callable[[Occurrence], object]]
_OCCURRENCE: _Columns = {
    f"{_DWC}occurrenceID": lambda row: row.id,
    f"{_DWC}basisOfRecord": lambda row: "HumanObservation",
    f"{_DWC}occurrenceStatus": lambda row: "present",
    f"{_DWC}taxonID": lambda row: row.taxon,
    f"{_DWC}scientificName": lambda row: _full_name(row),
    f"{_DWC}scientificNameAuthorship": lambda row: row.author,
    **{f"{_DWC}{level}": lambda row, level=level: row.parents.get(level, "") for level in _LEVELS},
    f"{_DWC}eventDate": lambda row: row.date,
    f"{_DWC}decimalLatitude": lambda row: "" if row.location is None else row.location.latitude,
    f"{_DWC}decimalLongitude": lambda row: "" if row.location is None else row.location.longitude,
    f"{_DWC}geodeticDatum": lambda row: "" if row.location is None else "WGS84",
    f"{_DWC}coordinateUncertaintyInMeters": lambda row: _uncertainty(row.location),
    f"{_DWC}recordedBy": lambda row: row.recorded_by,
    f"{_DC}license": lambda row: _license(row.license),
    f"{_DWC}identificationRemarks": lambda row: row.remarks,
    f"{_DWC}identificationVerificationStatus": lambda row: "verified" if row.is_verified else "unverified",
}
_PHOTO: dict[str, Callable[[Occurrence, Media], str]] = {
    f"{_DC}type": lambda row, photo: "StillImage",
    f"{_DC}format": lambda row, photo: photo.format,
    f"{_DC}identifier": lambda row, photo: photo.address,
    f"{_DC}created": lambda row, photo: row.date,
    f"{_DC}creator": lambda row, photo: photo.creator or row.recorded_by,
    f"{_DC}rightsHolder": lambda row, photo: photo.creator or row.recorded_by,
    f"{_DC}license": lambda row, photo: _license(photo.license or row.license),
}


def write_archive(path: str | Path, occurrences: Iterable[Occurrence], *, title: str) -> int:
    """Write a Darwin Core archive: occurrences, their photos, and a description of the data set.

    The license of the data set is the strictest of its occurrences.

    Args:
        path: The archive, ``.zip``.
        occurrences: Observations; they are read once, and not kept in memory.
        title: Title of the data set.

    Returns:
        The number of occurrences.

    Raises:
        ValueError: If the path does not end in ``.zip``.
    """
    path = Path(path)
    if path.suffix.lower() != ".zip":
        raise ValueError(f"path must end in .zip for a Darwin Core archive, got {path}")
    media = io.StringIO()
    media_rows = _writer(media)
    files: dict[str, Path] = {}
    number, strictest, order = 0, 0, list(LICENSES)
    with replacing(path) as place, zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open(_entry("occurrence.txt"), "w") as stream:
            text = io.TextIOWrapper(stream, "utf-8", newline="")
            rows = _writer(text)
            rows.writerow(map(_short, _OCCURRENCE))
            media_rows.writerow(["coreid", *map(_short, _PHOTO)])
            for row in occurrences:
                rows.writerow([_line(value(row)) for value in _OCCURRENCE.values()])
                for photo in row.media:
                    media_rows.writerow([row.id, *(_line(value(row, photo)) for value in _PHOTO.values())])
                    files |= {} if photo.file is None else {photo.address: photo.file}
                strictest = max(strictest, order.index(row.license) if row.license in LICENSES else -1)
                number += 1
            text.detach()
        archive.writestr(_entry("multimedia.txt"), media.getvalue())
        archive.writestr(_entry("meta.xml"), _meta())
        archive.writestr(_entry("eml.xml"), _eml(title, order[strictest]))
        for address, file in files.items():
            archive.writestr(_entry(address, zipfile.ZIP_STORED), file.read_bytes())
    return number


def _writer(stream: io.TextIOBase) -> Any:
    # without quotes, which not all readers of such files understand: no value has tabs or line ends
    return csv.writer(stream, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)


def _entry(name: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = compression
    return entry


def _short(term: str) -> str:
    return term.rsplit("/", 1)[1]


def _line(value: object) -> str:
    """Return a value without what ends a field or a line."""
    return " ".join(str(value).split())


def _license(name: str) -> str:
    """Return the address of a license, or its name if it is another one."""
    return LICENSES.get(name, name)


def strictest_license(names: Iterable[str]) -> str:
    """Return the strictest of some licenses; those that are not of :data:`LICENSES` are stricter."""
    order = list(LICENSES)
    return max(names, key=lambda name: order.index(name) if name in LICENSES else len(order))


def _full_name(row: Occurrence) -> str:
    return row.name if not row.author or row.name.endswith(row.author) else f"{row.name} {row.author}"


def _uncertainty(location: Location | None) -> object:
    return "" if location is None or location.uncertainty is None else f"{location.uncertainty:g}"


def _meta() -> bytes:
    """Return the file that says what the columns of the others are."""
    root = ElementTree.Element("archive", xmlns=_TEXT, metadata="eml.xml")
    tables = (
        ("core", _CORE, "occurrence.txt", "id", _OCCURRENCE),
        ("extension", _MEDIA, "multimedia.txt", "coreid", _PHOTO),
    )
    for kind, row_type, file, id_name, columns in tables:
        options = {"encoding": "UTF-8", "fieldsTerminatedBy": r"\t", "linesTerminatedBy": r"\n"}
        options |= {"fieldsEnclosedBy": "", "ignoreHeaderLines": "1", "rowType": row_type}
        table = ElementTree.SubElement(root, kind, options)
        ElementTree.SubElement(ElementTree.SubElement(table, "files"), "location").text = file
        ElementTree.SubElement(table, id_name, index="0")
        for index, term in enumerate(columns, start=int(kind == "extension")):
            ElementTree.SubElement(table, "field", index=str(index), term=term)
    return _document(root)


def _eml(title: str, license: str) -> bytes:
    """Return the description of the data set."""
    root = ElementTree.Element("eml:eml", {"xmlns:eml": _EML, "packageId": title, "system": "shortlist"})
    dataset = ElementTree.SubElement(root, "dataset")
    ElementTree.SubElement(dataset, "title").text = title
    for part in ("creator", "intellectualRights", "contact"):  # in the order of the schema
        element = ElementTree.SubElement(dataset, part)
        if part == "intellectualRights":
            rights = ElementTree.SubElement(element, "para")
            link = ElementTree.SubElement(rights, "ulink", url=LICENSES[license])
            ElementTree.SubElement(link, "citetitle").text = license
        else:
            ElementTree.SubElement(element, "organizationName").text = title
    return _document(root)


def _document(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
