"""``shortlist serve``: a photo in, a short list with similar photos out, over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    model: Annotated[
        Path, typer.Argument(help="Folder of a saved model, or a run folder.", show_default=False)
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
            help="File with the API keys that are allowed, one per line. Without it none is needed."
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
        Path, typer.Option(help="Folder of the store of people's answers, made with the first of them.")
    ] = Path("feedback"),
    admin_keys: Annotated[
        Path | None,
        typer.Option(help="File with the keys by which people's data can be deleted over HTTP."),
    ] = None,
    max_image_mb: Annotated[float, typer.Option(help="Largest image, in megabytes.")] = 20,
    max_request_mb: Annotated[float, typer.Option(help="Largest request, in megabytes.")] = 50,
    max_pixels: Annotated[int, typer.Option(help="Largest number of pixels of an image.")] = 50_000_000,
    max_requests: Annotated[int, typer.Option(help="Requests that are worked on at a time.")] = 128,
    queue: Annotated[int, typer.Option(help="Images that wait for the model at most.")] = 256,
    batch: Annotated[int, typer.Option(help="Images that go through the model together at most.")] = 64,
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only.")] = False,
) -> None:
    """Serve a finished model: an API, and a page to try it with.

    Stop it with Ctrl-C or SIGTERM: requests that were begun are answered first.
    """
    from shortlist.cli._console import own_network, warnings_as_lines
    from shortlist.index import ImageIndex
    from shortlist.model import Model
    from shortlist.serve.limits import Limits
    from shortlist.serve.server import serve as run_server
    from shortlist.serve.service import Service

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
    with warnings_as_lines():
        opened = Model.load(model, network=own_network(model, network), device=device)
        index = model / "index" if index is None and (model / "index").is_dir() else index
        known = None if index is None else ImageIndex.open(index, model=opened)
        service = Service(
            opened,
            source=model,
            index=known,
            keys=keys,
            feedback=feedback,
            admin_keys=admin_keys,
            limits=limits,
        )
    typer.echo(f"http://{host}:{port}/ serves {opened!r}; stop with Ctrl-C", err=True)
    run_server(
        service,
        host=host,
        port=port,
        origins=cors or (),
        hosts=allow_host or (),
        log_level="warning" if quiet else "info",
    )
