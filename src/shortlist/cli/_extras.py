"""Which extra of the package brings a module that is not installed."""

EXTRA_OF = {
    "PIL": "photos",
    "fontTools": "photos",
    "matplotlib": "photos",
    "pyarrow": "photos",
    "sqlalchemy": "photos",
    "lightning": "train",
    "pydantic": "train",
    "tensorboard": "train",
    "yaml": "train",
    "torchmetrics": "metrics",
    "timm": "pretrained",
    "torchvision": "pretrained",
    "onnx": "export",
    "onnxscript": "export",
    "jinja2": "report",
    "orjson": "serve",
    "prometheus_client": "serve",
    "h11": "serve",
    "fastapi": "serve",
    "python_multipart": "serve",
    "uvicorn": "serve",
    "psycopg": "postgres",
    "ray": "cluster",
}
"""The extra to install for each module that the base install does not bring."""


def words_for_missing(error: ImportError, verb: str) -> str | None:
    """Say which extra a verb needs, or return ``None`` for an error that no extra would mend.

    Example:
        >>> words_for_missing(ModuleNotFoundError("no", name="lightning.pytorch"), "train")
        "train needs lightning, which is not installed: pip install 'shortlist[train]'"
    """
    module = (error.name or "").split(".")[0]
    if module not in EXTRA_OF or not isinstance(error, ModuleNotFoundError):
        return None
    return f"{verb} needs {module}, which is not installed: pip install 'shortlist[{EXTRA_OF[module]}]'"


def words_for_unfit(error: Exception, verb: str) -> str | None:
    """Say what to do about a torchvision that is not of the installed torch; ``None`` for another error.

    Libraries import torchvision if they find it, also where nothing of it is used.

    Example:
        >>> words_for_unfit(RuntimeError("operator torchvision::nms does not exist"), "train")[:31]
        'train cannot import torchvision'
    """
    if not isinstance(error, RuntimeError) or "torchvision::" not in str(error):
        return None
    return (
        f"{verb} cannot import torchvision, which is of another version or build than torch: install both "
        "again from the same place, or pip uninstall torchvision"
    )
