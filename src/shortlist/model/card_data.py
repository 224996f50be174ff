"""What a model card says to machines: the metadata that the Hugging Face hub reads, at its top."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shortlist._messages import one_line
from shortlist.metrics import Results
from shortlist.promise import Promise

LICENSES = (
    *("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-4.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "mpl-2.0"),
)
"""Licenses that the hub has a page for; any other is ``other`` with its name."""


def metadata(
    description: Mapping[str, Any], promises: Mapping[str, Promise], results: Results | None
) -> dict[str, Any]:
    """Return the metadata as plain values."""
    about, photos = description["about"], description["preprocessing"] is not None
    name = one_line(str(about.get("name") or "model"))
    metrics = list(_metrics(promises, results))
    task = {"type": "image-classification" if photos else "tabular-classification"}
    data = one_line(str(about.get("data") or "test rows"))
    result = {"task": task, "dataset": {"name": data, "type": _slug(data)}, "metrics": metrics}
    return {
        **_license(about.get("license")),
        "library_name": "shortlist",
        "pipeline_tag": task["type"],
        "tags": ["shortlist", "set-valued-classification", "conformal-prediction"],
        **({"model-index": [{"name": name, "results": [result]}]} if metrics else {}),
    }


def front_matter(content: Mapping[str, Any]) -> str:
    """Write metadata as YAML: each value in the form of JSON, which YAML reads."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in content.items()]
    return f"---\n{''.join(lines)}---\n"


def _metrics(promises: Mapping[str, Promise], results: Results | None) -> Iterator[dict[str, Any]]:
    for k, averages in ({} if results is None else results.scores.topk).items():
        if averages.micro.value is not None:
            yield {"type": "accuracy", "name": f"top-{k} accuracy", "value": round(averages.micro.value, 4)}
    for name, promise in promises.items():
        if promise.measured is None:
            continue
        asked = "" if promise.level is None else f", promised {promise.level:g}"
        coverage, size = promise.measured.coverage, promise.measured.mean_size
        yield {"type": "coverage", "name": f"coverage of {name}{asked}", "value": round(coverage, 4)}
        yield {"type": "set_size", "name": f"classes in a list of {name}", "value": round(size, 3)}


def _license(stated: Any) -> dict[str, str]:
    if not stated:
        return {}
    name = one_line(str(stated))
    slug = _slug(name)
    return {"license": slug} if slug in LICENSES else {"license": "other", "license_name": slug}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "other"
