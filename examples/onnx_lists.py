"""The short list of a photo from an exported model, by onnxruntime, NumPy and Pillow alone: no PyTorch.

shortlist export RUN -o FOLDER --format onnx
python examples/onnx_lists.py FOLDER photo.jpg        # as the model's default predictor says
python examples/onnx_lists.py FOLDER photo.jpg 0.95   # of another coverage, by the calibration rows
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "u1"}


def read_rows(path: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file: the length of its header, the header, the numbers."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    return {
        name: np.frombuffer(
            content[start:], KINDS[each["dtype"]], math.prod(each["shape"]), each["data_offsets"][0]
        ).reshape(each["shape"])
        for name, each in header.items()
        if name != "__metadata__"
    }


def posterior(log_p: np.ndarray) -> np.ndarray:
    """Turn log-posteriors (n, c), of half precision, into those that are compared."""
    shares = np.exp(log_p.astype(np.float64))
    return (shares / shares.sum(1, keepdims=True)).astype(np.float32)


def calibration_scores(path: Path) -> np.ndarray:
    """Return 1 minus the posterior of the true class of each calibration object, ascending."""
    rows = read_rows(path)
    if "classes" in rows:
        raise SystemExit("Of so many classes only the best are kept: leave out the coverage.")
    numbers = np.arange(len(rows["target"]))  # several photos of an object: the first one counts
    first = np.unique(rows.get("observation", numbers), return_index=True)[1]
    return np.sort(1 - posterior(rows["log_p"][first])[np.arange(len(first)), rows["target"][first]])


def main(folder: Path, photo: str, coverage: float | None = None) -> None:
    """Print the list of a photo, with its promise."""
    about = json.loads((folder / "lists.json").read_text(encoding="utf-8"))
    picture = np.asarray(ImageOps.exif_transpose(Image.open(photo)).convert("RGB"))
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    made: dict[str, Any] = dict(zip(names, session.run(None, {"picture": picture}), strict=True))
    if coverage is None:
        predictor = next(each for each in about["predictors"] if each["name"] == about["default"])
        inside, promised = made[predictor["output"]][0], predictor["promise"]
        level, count = promised["level"], promised["rows"]
    else:
        level, apart = coverage, calibration_scores(folder / "rows.safetensors")
        count, shifted = len(apart), made["scores"] - made["scores"].max()
        log_p = (shifted - np.log(np.exp(shifted).sum())).astype(np.float16)
        rank = max(1, math.ceil((count + 1) * coverage - 1e-9))
        inside = 1 - posterior(log_p)[0] <= (apart[rank - 1] if rank <= count else math.inf)
    for index in np.argsort(-made["scores"][0], kind="stable"):
        if inside[index]:
            print(f"{made['probabilities'][0, index]:7.1%}  {about['classes']['names'][index]}")
    promise = f"{100 * level:g} of 100 such lists hold the right class" if level else "Nothing is promised"
    print(f"{promise} ({count or 0} calibration photos).")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:]))
