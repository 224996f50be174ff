"""A small hub on loopback that speaks as much of the Hugging Face hub's protocol as models need.

Repositories, the choice of files for LFS, their upload by the batch API, commits as lines of JSON, listings
by revision, and files by revision with ETag and the headers of linked files. It keeps every commit.
"""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_a_test"


class Hub:
    """Repositories: by name, their branches and commits, each of which is all of its files."""

    def __init__(self):
        self.branches, self.commits, self.blobs, self.private = {}, {}, {}, set()
        self.requests = []

    def commit(self, repo, branch, files):
        text = json.dumps(
            [repo, len(self.commits), sorted((n, hashlib.sha1(b).hexdigest()) for n, b in files.items())]
        )
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = files
        self.branches[repo][branch] = sha
        return sha

    def files(self, repo, revision):
        sha = self.branches.get(repo, {}).get(revision, revision)
        return (sha, self.commits[sha]) if repo in self.branches and sha in self.commits else (None, None)


def is_large(name):
    return name.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def answer(self, content, status=200, headers=None, body=True):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def missing(self, kind):
        self.answer({"error": kind}, 404, {"X-Error-Code": kind})

    def parts(self):
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.hub.requests.append((self.command, "/".join(path)))
        return path

    def allowed(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self):
        match self.parts():
            case _ if not self.allowed():
                self.body()
                self.answer({"error": "Unauthorized"}, 401)
            case ["api", "repos", "create"]:
                asked = json.loads(self.body())
                repo = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
                new = repo not in self.hub.branches
                if new:
                    self.hub.branches[repo] = {}
                    self.hub.commit(repo, "main", {".gitattributes": b"*.safetensors filter=lfs\n"})
                    hidden = asked.get("private") or asked.get("visibility") == "private"
                    self.hub.private |= {repo} if hidden else set()
                self.answer({"url": f"{self.server.url}/{repo}"}, 200 if new else 409)
            case ["api", "models", user, name, "branch", branch]:
                self.body()
                repo = f"{user}/{name}"
                new = branch not in self.hub.branches[repo]
                self.hub.branches[repo].setdefault(branch, self.hub.branches[repo]["main"])
                self.answer({}, 200 if new else 409)
            case ["api", "validate-yaml"]:
                content = json.loads(self.body())["content"]
                self.answer(
                    {
                        "errors": [] if content.startswith("---\n") else [{"message": "no metadata"}],
                        "warnings": [],
                    }
                )
            case ["api", "models", _, _, "preupload", _]:
                files = json.loads(self.body())["files"]
                modes = [
                    {"path": f["path"], "uploadMode": "lfs" if is_large(f["path"]) else "regular",
                     "shouldIgnore": False, "oid": None}
                    for f in files
                ]  # fmt: skip
                self.answer({"files": modes})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = json.loads(self.body())["objects"]
                for each in objects:
                    if each["oid"] not in self.hub.blobs:
                        each["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{each['oid']}"}}
                self.answer({"transfer": "basic", "objects": objects})
            case ["api", "models", user, name, "commit", branch]:
                repo = f"{user}/{name}"
                _, files = self.hub.files(repo, branch)
                files = dict(files)
                for line in filter(None, self.body().split(b"\n")):
                    step = json.loads(line)
                    value = step["value"]
                    if step["key"] == "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                    elif step["key"] == "lfsFile":
                        files[value["path"]] = self.hub.blobs[value["oid"]]
                    elif step["key"] == "deletedFile":
                        del files[value["path"]]
                sha = self.hub.commit(repo, branch, files)
                url = f"{self.server.url}/{repo}/commit/{sha}"
                self.answer({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})
            case _:
                self.body()
                self.missing("EntryNotFound")

    def do_PUT(self):
        [*_, oid] = self.parts()
        data = self.body()
        if hashlib.sha256(data).hexdigest() != oid:
            self.answer({"error": "not these bytes"}, 400)
        else:
            self.hub.blobs[oid] = data
            self.answer({})

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        match self.parts():
            case ["api", "models", user, name, *_] | [user, name, "resolve", *_] if (
                f"{user}/{name}" not in self.hub.branches
                or (f"{user}/{name}" in self.hub.private and not self.allowed())
            ):
                self.missing("RepoNotFound")
            case ["api", "models", user, name, "tree", revision, *_]:
                _, files = self.hub.files(f"{user}/{name}", revision)
                self.answer([entry(n, data) for n, data in sorted(files.items())])
            case ["api", "models", user, name, *rest]:
                repo, revision = f"{user}/{name}", rest[1] if rest else "main"
                sha, files = self.hub.files(repo, revision)
                if sha is None:
                    return self.missing("RevisionNotFound")
                siblings = [{"rfilename": n} for n in sorted(files)]
                self.answer({"_id": "1", "id": repo, "modelId": repo, "sha": sha, "siblings": siblings,
                             "tags": [], "downloads": 0, "likes": 0, "private": False})  # fmt: skip
            case [user, name, "resolve", revision, *path]:
                self.resolve(f"{user}/{name}", revision, "/".join(path), body)
            case _:
                self.missing("EntryNotFound")

    def resolve(self, repo, revision, name, body):
        sha, files = self.hub.files(repo, revision)
        if sha is None or name not in files:
            return self.missing("RevisionNotFound" if sha is None else "EntryNotFound")
        data = files[name]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{entry(name, data)["oid"]}"'}
        if is_large(name):
            headers |= {
                "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
            }
        self.answer(data, headers=headers, body=body)


def entry(name, data):
    """Describe a file as a listing does: by the hash that git gives it."""
    found = {"type": "file", "path": name, "size": len(data)}
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if is_large(name):
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return {**found, "oid": oid, "lfs": lfs}
    return {**found, "oid": oid}


@contextmanager
def running_hub():
    """A hub that answers until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub, server.url = Hub(), f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
