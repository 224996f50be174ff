"""``shortlist serve``: a photo in, a short list with similar photos out, over HTTP."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli._console import warnings_as_lines
from shortlist.cli._options import AllowCode, OwnNetwork, argument, option

if TYPE_CHECKING:
    from shortlist.serve import ServiceSource


class People(str, Enum):
    """Who may answer."""

    open = "open"
    invited = "invited"


def serve(
    model: Annotated[
        Path,
        argument(
            "Folder of a saved model, a run folder, or a folder of releases. Of releases, the server "
            "always uses the current one."
        ),
    ],
    host: Annotated[
        str, option("Address to listen at. Only this machine can reach the default one.")
    ] = "127.0.0.1",
    port: Annotated[int, option("Port to listen at.", min=0, max=65535)] = 8000,
    index: Annotated[
        Path | None,
        option(
            "Folder of an index of known images, which are then shown beside each candidate; by default "
            "the folder index inside MODEL, if there is one."
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        option("File with the allowed API keys, one per line. Without this option, no key is needed."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        option(
            "Origin of another page that may use the server. May be given several times.", metavar="ORIGIN"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        option("Name by which the server may be called. May be given several times.", metavar="NAME"),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option(
            "Address or network of a proxy that tells the address of its client (X-Forwarded-For). May be "
            "given several times. Nobody else is believed.",
            metavar="ADDRESS",
        ),
    ] = None,
    feedback: Annotated[
        str,
        option(
            "Folder that keeps people's answers, made with the first one. For servers on several hosts, the "
            "address of a database: postgresql://USER@HOST/NAME.",
            metavar="DIR",
        ),
    ] = "feedback",
    admin_keys: Annotated[
        Path | None, option("File with the keys by which people's data can be deleted over HTTP.")
    ] = None,
    audit: Annotated[
        float,
        option(
            "Share of the requests, from 0 to 1, that are drawn for the audit: an expert should answer "
            "them. Only requests that ask for a receipt are drawn."
        ),
    ] = 0.0,
    max_image_mb: Annotated[float, option("Largest image, in megabytes.")] = 20,
    max_request_mb: Annotated[float, option("Largest request, in megabytes.")] = 50,
    max_pixels: Annotated[int, option("Largest number of pixels of an image.")] = 50_000_000,
    max_requests: Annotated[int, option("Most requests that are handled at a time.")] = 128,
    queue: Annotated[int, option("Most images that may wait for the model.")] = 256,
    batch: Annotated[int, option("Most images that go through the model at once.")] = 64,
    rate: Annotated[
        int, option("Requests per minute of one client, by key or address; 0 for any number.")
    ] = 0,
    answer_rate: Annotated[
        int,
        option(
            "Answers, votes and observations per minute of one invited person on all devices, or of one "
            "key or address; 0 for any number."
        ),
    ] = 300,
    any_project: Annotated[
        bool,
        option("Take any project that clients of Pl@ntNet's API ask for as all classes.", "--any-project"),
    ] = False,
    allow_urls: Annotated[
        list[str] | None,
        option(
            "Host from which the server may fetch photos for clients of Pl@ntNet's API that send "
            "addresses. May be given several times. Without this option, nothing is fetched.",
            metavar="HOST",
        ),
    ] = None,
    places: Annotated[
        Path | None,
        option(
            "Folder of places, a CSV or Darwin Core table each: which classes occur there, and how "
            "often. Requests and the page choose one by name."
        ),
    ] = None,
    names: Annotated[
        Path | None,
        option(
            "Checklist of names that people can search, known to the model or not: a CSV, or a Darwin Core "
            "taxon table or its folder."
        ),
    ] = None,
    people: Annotated[
        People,
        option("Who may answer: open for anybody, invited for people with a link of shortlist people add."),
    ] = People.open,
    app_answers: Annotated[
        bool,
        option(
            "Take answers to lists that an app made (shortlist export --format app). Nobody signed these "
            "lists: the model of an answer is then app:VERSION.",
            "--app-answers",
        ),
    ] = False,
    kind: Annotated[
        str,
        option("What the model knows, such as 'a plant': the page has a button for what is no such thing."),
    ] = "",
    organ: Annotated[
        list[str] | None,
        option(
            "What a photo may show, such as leaf, which the page asks of each photo. May be given several "
            "times. Without this option, it asks for the organs of the model's calibration photos.",
            metavar="NAME",
        ),
    ] = None,
    device: Annotated[str, option("Device of the network, such as cpu or cuda.")] = "cpu",
    allow_code: AllowCode = False,
    network: OwnNetwork = None,
    engine: Annotated[
        str, option("local for this machine, or ray for replicas on Ray Serve.", "--engine")
    ] = "local",
    processes: Annotated[
        int,
        option("Processes that serve, each with its own model, queue, limits and rate; 64 at most.", min=1),
    ] = 1,
    replicas: Annotated[int, option("With --engine ray: number of replicas.", min=1)] = 1,
    address: Annotated[
        str | None,
        option("With --engine ray: address of a running cluster; without it, Ray is started here."),
    ] = None,
    quiet: Annotated[bool, option("Log warnings and errors only.", "--quiet")] = False,
) -> None:
    """Serve a finished model: an API, and a page to try it with.

    Stop it with Ctrl-C or SIGTERM: requests that have already begun are answered first.
    """
    from shortlist._bounds import check_choice
    from shortlist.feedback import is_address
    from shortlist.serve import Limits, ServiceSource

    check_choice("--engine", engine, ("local", "ray"))
    _check_engine(engine, processes, replicas, address, proxy)
    limits = Limits(
        image_bytes=int(max_image_mb * 1e6),
        request_bytes=int(max_request_mb * 1e6),
        pixels=max_pixels,
        requests=max_requests,
        queue=queue,
        batch=batch,
        rate=rate,
        answer_rate=answer_rate,
        batch_images=min(Limits.batch_images, queue),
    )
    files = {"model": model, "index": index, "keys": keys, "admin_keys": admin_keys}
    files |= {"places": places, "names": names}
    if not is_address(feedback):
        files["feedback"] = Path(feedback)
    if engine == "ray":  # replicas have other current folders
        files = {name: path and path.absolute() for name, path in files.items()}
    paths = {name: path and str(path) for name, path in files.items()}
    paths = {"feedback": feedback} | paths
    parts = {"limits": limits, "audit": audit, "device": device, "network": network}
    parts |= {"any_project": any_project, "allow_urls": tuple(allow_urls or ()), "organs": tuple(organ or ())}
    parts |= {"kind": kind, "people": people.value, "app_answers": app_answers}
    source = ServiceSource(**paths, **parts)  # type: ignore[arg-type]
    where: dict[str, Any] = {"host": host, "port": port, "origins": cors or (), "hosts": allow_host or ()}
    if engine == "ray":
        _serve_on_ray(source, where | {"replicas": replicas, "address": address})
    else:
        _serve_here(
            source, processes, where | {"proxies": proxy or (), "log_level": "warning" if quiet else "info"}
        )


def _check_engine(
    engine: str, processes: int, replicas: int, address: str | None, proxy: list[str] | None
) -> None:
    """Refuse options of the other engine."""
    if engine == "local" and (replicas != 1 or address is not None):
        raise ValueError("--replicas and --address are for --engine ray")
    if engine == "ray" and processes != 1:
        raise ValueError("--processes is for --engine local; with ray there are --replicas")
    if engine == "ray" and proxy:
        raise ValueError("--proxy is for --engine local: Ray's own proxy is before the replicas")


def _serve_here(source: "ServiceSource", processes: int, where: dict[str, Any]) -> None:
    """Serve on this machine: a model, or the current one of some releases."""
    from shortlist.releases import is_releases
    from shortlist.serve import FeedbackDesk, serve as run_server, serve_by_processes

    place = _address(**where)
    with warnings_as_lines():
        if processes > 1:
            typer.echo(f"{place} is served by {processes} processes; stop with Ctrl-C", err=True)
            serve_by_processes(source, processes=processes, **where)
            return
        service = source.follow(FeedbackDesk(source.feedback))
    what = "the current release, and follows it" if is_releases(source.model) else repr(service.make().model)
    typer.echo(f"{place} serves {what}; stop with Ctrl-C", err=True)
    run_server(service, **where)


def _address(host: str, port: int, **_: Any) -> str:
    """Return what a browser is given to open."""
    named = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{named}:{port}/"


def _serve_on_ray(source: "ServiceSource", where: dict[str, Any]) -> None:
    """Serve one model by replicas on Ray Serve."""
    from shortlist.releases import is_releases
    from shortlist.serve import serve_on_ray

    if is_releases(source.model):
        raise ValueError(f"--engine ray serves one model and follows no releases, got {source.model}")
    with warnings_as_lines():
        source.open()  # what cannot be served fails here, in words
    place = _address(**where)
    typer.echo(f"{place} is served by {where['replicas']} replicas; stop with Ctrl-C", err=True)
    serve_on_ray(source, **where)
