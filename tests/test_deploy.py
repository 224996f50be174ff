"""Files to run the server elsewhere, and of the project's automation: read by the programs they are for."""

import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml

from tests.serve.parts import files, png
from tests.serve.test_process import Server, folder as folder

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
SCHEMAS = {
    "compose-spec": [ROOT / "compose.yaml"],
    "dependabot": [ROOT / ".github/dependabot.yml"],
    "github-workflows": WORKFLOWS,
    "github-issue-forms": [ROOT / ".github/ISSUE_TEMPLATE/bug.yml", ROOT / ".github/ISSUE_TEMPLATE/idea.yml"],
}


def program(name: str) -> str:
    """A program beside this Python, or on the path."""
    return shutil.which(str(Path(sys.executable).parent / name)) or shutil.which(name) or pytest.skip(name)


def check(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_have_the_form_that_their_program_reads(schema):
    check(program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema])


def test_the_image_passes_its_linter():
    check(program("hadolint"), "--failure-threshold", "warning", "Dockerfile")


def test_the_unit_is_one_that_systemd_reads(tmp_path):
    """With a program that is there in place of /opt/shortlist."""
    analyze, unit = program("systemd-analyze"), tmp_path / "shortlist.service"
    text = (ROOT / "deploy/shortlist.service").read_text()
    unit.write_text(text.replace("/opt/shortlist/bin/shortlist", sys.executable))
    assert "shortlist" not in check(analyze, "verify", unit)  # it names the unit if it has something to say
    exposure = check(analyze, "security", "--offline=true", unit)
    assert float(re.search(r"exposure level for \S+: ([\d.]+)", exposure)[1]) < 2.5


def test_commands_of_workflows_are_targets_of_the_makefile():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M))
    asked = set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            for step in job["steps"]:
                if step.get("run", "").startswith("make "):
                    asked |= set(step["run"].split()[1:])
    assert {"lint", "types", "docs", "test", "release", "slow"} <= asked <= targets


def test_versions_of_python_are_those_of_the_package():
    [ci] = [path for path in WORKFLOWS if path.name == "ci.yml"]
    versions = yaml.safe_load(ci.read_text())["jobs"]["test"]["strategy"]["matrix"]["python"]
    lowest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    assert versions[0] == lowest and "3.13" in versions


def test_options_of_the_files_are_those_of_the_command():
    """Each option after ``shortlist serve`` is one of the command."""
    from typer.main import get_command

    from shortlist.cli import app

    options = {name for option in get_command(app).commands["serve"].params for name in option.opts}
    lines = "\n".join(
        (ROOT / name).read_text()
        for name in ("Dockerfile", "deploy/shortlist.service", "docs/guides/deploy.md")
    )
    used = set(
        re.findall(
            r"(?<=[ \"`])--[a-z-]+", "\n".join(re.findall(r"(?:shortlist |\[\"?)serve\b(?!\]).*", lines))
        )
    )
    assert {"--host", "--feedback", "--proxy", "--allow-host", "--rate"} <= used <= options


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def nginx(tmp_path: Path, port: int, server: int) -> list[str]:
    """The server block of the repository, without its certificate, in a configuration of its own."""
    block = (ROOT / "deploy/nginx.conf").read_text()
    block = re.sub(r" *ssl_certificate.*\n", "", block).replace("443 ssl", f"127.0.0.1:{port}")
    block = block.replace("127.0.0.1:8000", f"127.0.0.1:{server}")
    folders = "".join(
        f"{name}_temp_path {tmp_path}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{block}}}\n"
    )
    return [program("nginx"), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "errors")]


def caddy(tmp_path: Path, port: int, server: int) -> list[str]:
    """The file of the repository, at an address without a certificate."""
    text = (ROOT / "deploy/Caddyfile").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{server}")
    text = text.replace("plants.example.org {", f"http://plants.example.org:{port} {{\n\tbind 127.0.0.1")
    (tmp_path / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
    return [program("caddy"), "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], port: int):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        stop = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < stop:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        assert process.poll() is None
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_photos_go_through_a_proxy_that_tells_who_asks(proxy, folder, tmp_path):
    """Two clients of the proxy, at two addresses of this machine, have a rate each."""
    port, name = free_port(), {"Host": "plants.example.org"}
    words = ("--proxy", "127.0.0.1", "--allow-host", "plants.example.org", "--rate", "1")
    server = Server(folder, tmp_path, *words)
    try:
        with running(proxy(tmp_path, port, server.port), port):

            def ask(client: str) -> httpx.Response:
                transport = httpx.HTTPTransport(local_address=client)
                with httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}") as session:
                    return session.post("/v1/identify", files=files(png(1)), headers=name)

            first = ask("127.0.0.1")
            assert first.status_code == 200 and first.json()["candidates"]
            assert [ask(client).status_code for client in ("127.0.0.1", "127.0.0.2")] == [429, 200]
    finally:
        server.process.terminate()
        server.process.wait(60)


@pytest.mark.slow
def test_the_image_answers(folder, tmp_path):
    """Where Docker runs and can fetch the images that ours starts from."""
    docker = program("docker")
    if subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine runs here")
    tag, port = "shortlist:test", free_port()
    check(docker, "build", "--tag", tag, ".")
    words = ("run", "--rm", "--detach", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
    image = check(docker, *words, "-p", f"127.0.0.1:{port}:8000", "-v", f"{folder}:/model:ro", tag).strip()
    try:
        stop = time.monotonic() + 120
        while time.monotonic() < stop:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/identify", files=files(png(1)))
        assert answer.status_code == 200 and answer.json()["candidates"]
    finally:
        check(docker, "stop", image)
