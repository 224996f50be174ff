"""``shortlist export``: a model as files for other devices."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from shortlist.cli._console import print_json, print_line, print_next, working
from shortlist.cli._options import AllowCode, AsJson, DataPlace, ModelPlace, OwnNetwork, option

if TYPE_CHECKING:
    from shortlist._progress import Progress
    from shortlist.model import Model, Weights

FORMATS = ("onnx", "app", "torch")


def export(
    model: ModelPlace,
    out: Annotated[Path, option("Folder to write. It must not exist yet.", "--out", "-o")],
    form: Annotated[
        str,
        option(
            "onnx: an ONNX file that takes photos, and what lists need. app: static files, a page that works "
            "offline. torch: the model's own folder, for Model.load.",
            "--format",
        ),
    ] = "onnx",
    weights: Annotated[
        str,
        option(
            "How weights are kept: float32, float16 or int8. The last two calibrate again from scores of the "
            "rounded network, which needs the run's data."
        ),
    ] = "float32",
    data: DataPlace = None,
    network: OwnNetwork = None,
    allow_code: AllowCode = False,
    index: Annotated[
        Path | None,
        option("With --format app: index of known images; by default that of the model, if there is one."),
    ] = None,
    thumbnails: Annotated[
        int | None,
        option("With --format app and an index: known images of each class, 3 by default.", min=0),
    ] = None,
    place: Annotated[
        list[Path] | None,
        option("With --format app: file of a place that people can choose; may be repeated."),
    ] = None,
    runtime: Annotated[
        Path | None,
        option(
            "With --format app: folder with the files of onnxruntime-web; npm fetches them if it is left out."
        ),
    ] = None,
    kind: Annotated[str, option('With --format app: what the model knows, such as "a plant".')] = "",
    server: Annotated[
        str, option("With --format app: address to which answers can be sent.", metavar="URL")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Export a model for other devices: as ONNX, as an app that works offline, or as its own folder.

    All of them make the same lists with the same promise; docs/guides/export.md says what differs.
    """
    from shortlist._bounds import check_choice
    from shortlist.model import WEIGHTS, export_lists, model_version

    check_choice("--format", form, FORMATS)
    check_choice("--weights", weights, WEIGHTS)
    kept = cast("Weights", weights)
    parts: dict[str, Any] = {"index": index, "thumbnails": thumbnails, "places": place, "runtime": runtime}
    parts |= {"kind": kind or None, "server": server or None}
    _refuse_useless(form, parts, weights, data)
    if out.exists():
        raise ValueError(f"--out must not exist yet, got {out}")
    with working(as_json=as_json) as report:
        opened, before = _opened(model, kept, data, network, report)
        if form == "app" and opened.preprocessing is None:
            raise ValueError(
                f"--format app must be of a model that takes photos, got {model}: it takes inputs"
            )
        version = model_version(model) + ("" if weights == "float32" else f"-{weights}")
        if form == "torch":
            opened.save(out)
            content: dict[str, Any] = {"left_out": []}
        elif form == "onnx":
            content = export_lists(opened, out, version=version, weights=kept)
        else:
            from shortlist.app import write_app

            parts |= {"source": model, "index": index or _own_index(model), "index_model": before}
            if thumbnails and parts["index"] is None:
                raise ValueError(f"--thumbnails needs an index: make one with shortlist index {model}")
            given = {name: value for name, value in parts.items() if value is not None}
            with tempfile.TemporaryDirectory() as folder:
                lists = Path(folder) / "lists"
                content = export_lists(opened, lists, version=version, weights=kept)
                write_app(lists, out, model=opened, **given)
    _print(out, form, opened, before, content, as_json)
    if not as_json:
        _print_next(model, out, form)


def _refuse_useless(form: str, parts: dict[str, Any], weights: str, data: Path | None) -> None:
    """Refuse options that mean nothing for a format or for weights."""
    for name, value in parts.items():
        if value is not None and form != "app":
            option_name = {"places": "place"}.get(name, name)
            raise ValueError(f"--{option_name} is for --format app, got it with {form}")
    if data is not None and weights == "float32":
        raise ValueError("--data is for --weights float16 and int8, got it with float32")


def _print_next(model: Path, out: Path, form: str) -> None:
    """Say which command to try: the app as well, or what opens the folder that was written."""
    if form == "app":
        print_next("-m", "http.server", "--directory", out, program="python")
    elif form == "torch":
        print_next("serve", out)
    else:
        print_next("export", model, "--format", "app", "-o", f"{out}-app")


def _opened(
    path: Path, weights: "Weights", data: Path | None, network: str | None, report: "Progress"
) -> "tuple[Model, Model]":
    """Return the model to export, and the one that it was before its weights were rounded."""
    from shortlist.model import Model, network_by_name

    before = Model.load(path, network=network)
    if weights == "float32":
        return before, before
    from shortlist.training import rounded_model

    own_network = None if network is None else network_by_name(path, network)
    return rounded_model(path, weights, data=data, network=own_network, progress=report), before


def _own_index(model: Path) -> Path | None:
    """Return the index of a model, where shortlist index puts it."""
    return model / "index" if (model / "index").is_dir() else None


def _print(out: Path, form: str, model: "Model", before: "Model", content: Any, as_json: bool) -> None:
    """Say what was written, what it lacks, and what rounding changed on held-out photos."""
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    changes = {} if model is before else _changes(before, model)
    if as_json:
        numbers = {"out": str(out), "format": form, "bytes": size, "left_out": content["left_out"]}
        print_json({**numbers, "measured": changes})
        return
    print_line(f"{out}: {form}, {size / 1e6:.1f} MB")
    for line in content["left_out"]:
        print_line(f"left out: {line}")
    for name, (old, new) in changes.items():
        print_line(
            f"{name}: coverage on held-out photos {old['coverage']:.1%}, now {new['coverage']:.1%}; "
            f"classes in a list {old['mean_size']:.2f}, now {new['mean_size']:.2f}"
        )


def _changes(before: "Model", after: "Model") -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Return, by predictor, what was measured on held-out photos before and after."""
    changes = {}
    for name, promise in before.promises.items():
        pair = promise.measured, after.promises[name].measured
        if pair[0] is not None and pair[1] is not None:
            changes[name] = tuple({"coverage": m.coverage, "mean_size": m.mean_size} for m in pair if m)
    return changes
