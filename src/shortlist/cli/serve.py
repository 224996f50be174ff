"""``shortlist serve``: a photo in, a short list with similar photos out, over HTTP."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from shortlist.releases import Releases
    from shortlist.serve.server import Follow
    from shortlist.serve.service import Service

__all__ = ["serve"]


def serve(
    model: Annotated[
        Path,
        typer.Argument(
            help="Folder of a saved model, a run folder, or a folder of releases. Of releases, the server "
            "always uses the current one.",
            show_default=False,
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at. Only this machine can reach the default one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    index: Annotated[
        Path | None,
        typer.Option(
            help="Folder of an index of known images, which are then shown beside each candidate; by default "
            "the folder index inside MODEL, if there is one.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="File with the allowed API keys, one per line. Without this option, no key is needed."
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin of another page that may use the server. May be given several times.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Name by which the server may be called. May be given several times."
        ),
    ] = None,
    feedback: Annotated[
        Path, typer.Option(help="Folder that keeps people's answers. It is made with the first answer.")
    ] = Path("feedback"),
    admin_keys: Annotated[
        Path | None,
        typer.Option(help="File with the keys by which people's data can be deleted over HTTP."),
    ] = None,
    audit: Annotated[
        float,
        typer.Option(
            help="Share of the requests, from 0 to 1, that are drawn for the audit: an expert should answer "
            "them. Only requests that ask for a receipt are drawn."
        ),
    ] = 0.0,
    max_image_mb: Annotated[float, typer.Option(help="Largest image, in megabytes.")] = 20,
    max_request_mb: Annotated[float, typer.Option(help="Largest request, in megabytes.")] = 50,
    max_pixels: Annotated[int, typer.Option(help="Largest number of pixels of an image.")] = 50_000_000,
    max_requests: Annotated[int, typer.Option(help="Most requests that are handled at a time.")] = 128,
    queue: Annotated[int, typer.Option(help="Most images that may wait for the model.")] = 256,
    batch: Annotated[int, typer.Option(help="Most images that go through the model at once.")] = 64,
    rate: Annotated[
        int, typer.Option(help="Requests per minute of one client, by key or address; 0 for any number.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Device of the network, such as cpu or cuda.")] = "cpu",
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that makes the network. Needed if the network of the model is your own code.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="local for one process here, or ray for replicas on Ray Serve.")
    ] = "local",
    replicas: Annotated[int, typer.Option(help="With --engine ray: number of replicas.", min=1)] = 1,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: address of a running cluster; without it, Ray is started here.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only.")] = False,
) -> None:
    """Serve a finished model: an API, and a page to try it with.

    Stop it with Ctrl-C or SIGTERM: requests that have already begun are answered first.
    """
    from shortlist._checks import check_choice
    from shortlist.serve.limits import Limits

    check_choice("--engine", engine, ("local", "ray"))
    if engine == "local" and (replicas != 1 or address is not None):
        raise ValueError("--replicas and --address are for --engine ray")
    limits = Limits(
        image_bytes=int(max_image_mb * 1e6),
        request_bytes=int(max_request_mb * 1e6),
        pixels=max_pixels,
        requests=max_requests,
        queue=queue,
        batch=batch,
        rate=rate,
        batch_images=min(Limits.batch_images, queue),
    )
    files = {"index": index, "keys": keys, "admin_keys": admin_keys, "feedback": feedback}
    parts = {"limits": limits, "audit": audit, "device": device, "network": network}
    where: dict[str, Any] = {"host": host, "port": port, "origins": cors or (), "hosts": allow_host or ()}
    if engine == "ray":
        _serve_on_ray(model, files, parts, where | {"replicas": replicas, "address": address})
    else:
        _serve_here(model, files, parts, where | {"log_level": "warning" if quiet else "info"})


def _serve_here(
    model: Path, files: dict[str, Path | None], parts: dict[str, Any], where: dict[str, Any]
) -> None:
    """Serve in this process: a model, or the current one of some releases."""
    from shortlist.cli._console import own_network, warnings_as_lines
    from shortlist.index import ImageIndex
    from shortlist.model import Model
    from shortlist.releases import Releases, is_releases
    from shortlist.serve.feedback import FeedbackDesk
    from shortlist.serve.keys import Keys
    from shortlist.serve.server import Follow
    from shortlist.serve.server import serve as run_server
    from shortlist.serve.service import Service

    with warnings_as_lines():
        desk = FeedbackDesk(files["feedback"] or "feedback")
        shared: dict[str, Any] = {"keys": Keys(files["keys"]), "admin_keys": Keys(files["admin_keys"])}
        shared |= {"feedback": desk, "limits": parts["limits"], "audit": parts["audit"]}

        def open_service(folder: Path, index: Path | None) -> Service:
            network = own_network(folder, parts["network"])
            opened = Model.load(folder, network=network, device=parts["device"])
            index = _index_of(folder, index)
            known = None if index is None else ImageIndex.open(index, model=opened)
            return Service(opened, source=folder, index=known, **shared)

        if is_releases(model):
            service = _following(Releases(model), open_service, files["index"], desk.close)
            what = "the current release, and follows it"
        else:
            made = open_service(model, files["index"])
            service, what = Follow(lambda: "", lambda: made, desk.close), repr(made.model)
    typer.echo(f"http://{where['host']}:{where['port']}/ serves {what}; stop with Ctrl-C", err=True)
    run_server(service, **where)


def _index_of(folder: Path, index: Path | None) -> Path | None:
    """Return the index that is asked for, or the one inside the folder of a model, if there is one."""
    return folder / "index" if index is None and (folder / "index").is_dir() else index


def _serve_on_ray(
    model: Path, files: dict[str, Path | None], parts: dict[str, Any], where: dict[str, Any]
) -> None:
    """Serve one model by replicas on Ray Serve."""
    from shortlist.cli._console import look_here_for_code, warnings_as_lines
    from shortlist.releases import is_releases
    from shortlist.serve.on_ray import ServiceSource, serve_on_ray

    if is_releases(model):
        raise ValueError(f"--engine ray serves one model and follows no releases, got {model}")
    if parts["network"] is not None:
        look_here_for_code()
    files = files | {"model": model, "index": _index_of(model, files["index"])}
    # replicas have other current folders
    places = {name: None if path is None else str(path.absolute()) for name, path in files.items()}
    source = ServiceSource(**places, **parts)  # type: ignore[arg-type]
    with warnings_as_lines():
        source.open()  # what cannot be served fails here, in words
    place = f"http://{where['host']}:{where['port']}/"
    typer.echo(f"{place} is served by {where['replicas']} replicas; stop with Ctrl-C", err=True)
    serve_on_ray(source, **where)


def _following(
    place: "Releases",
    open_service: "Callable[[Path, Path | None], Service]",
    index: Path | None,
    close: Callable[[], None],
) -> "Follow":
    """Return what follows the current release, with its own index unless another is given."""
    from shortlist.serve.server import Follow

    def make() -> "Service":
        current = place.current()
        if current is None:
            raise ValueError(f"{place.folder} has no current release")
        own = Path(current.index) if current.index and Path(current.index).is_dir() else None
        return open_service(place.model_path(current), index or own)

    def version() -> str:
        current = place.current()
        return "" if current is None else f"{current.number} ({current.version})"

    return Follow(version, make, close)
