"""A small server that answers as the Hub does, on loopback, for tests with the real client.

::

    with HubServer() as hub:
        hub.add("org/name", folder)
        run(..., env={"HF_ENDPOINT": hub.url})
        assert hub.sent("org/name") < 1000

Model info, tree listing, and ``resolve`` with the commit, ETag and linked-size headers; large files are redirected to a
second port, the "CDN", as on the Hub, which serves ranges and must not see a token. Written against the requests that
huggingface_hub 2.4 makes.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PIECE = 256 * 1024
LARGE = (".safetensors", ".bin")
TOKEN = "hf_" + "a" * 34
"""The only token that the server accepts."""


@dataclass
class Repo:
    """``revisions`` is branch or tag → commit; ``commits`` is commit → files by path."""

    name: str
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def files(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.revisions.get(revision, revision))


@dataclass(frozen=True)
class Request:
    """``sent`` counts the bytes of the body; ``served`` is the path of the file in the repo, if one was asked for."""

    method: str
    repo: str
    served: str
    status: int
    sent: int
    authorized: bool


class HubServer:
    """Both ports, in threads.

    ``cuts`` maps a file's path to how often it is cut off in the middle, ``recorded`` to a size that is not its own,
    ``altered`` to entries of its record that are not the Hub's.
    ``ailment`` is what the Hub's port suffers from: ``"down"`` (HTTP 503), ``"busy"`` (429), or ``"page"``: it answers
    everything with a web page, as a hotel's network does. ``delay`` is seconds for every 256 kB of a body.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self.cuts: dict[str, int] = {}
        self.recorded: dict[str, int] = {}
        self.altered: dict[str, dict[str, object]] = {}
        self.ailment = ""
        self.delay = 0.0
        self._hub = _listen(self, _Hub)
        self._cdn = _listen(self, _Cdn)

    def reset(self) -> None:
        """Forget the repos, the requests and all ailments."""
        for kept in (self.repos, self.requests, self.cuts, self.recorded, self.altered):
            kept.clear()
        self.ailment = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_port}"

    @property
    def cdn_url(self) -> str:
        """Another host, as for the client the name decides where a token may go."""
        return f"http://localhost:{self._cdn.server_port}"

    def add(self, name: str, source: Path | Mapping[str, bytes], revision: str = "main", **settings: bool) -> Repo:
        """Serve a folder, or files given as path → contents, as ``revision`` of the repo ``name``."""
        repo = self.repos.setdefault(name, Repo(name))
        for key, value in settings.items():
            setattr(repo, key, value)
        if isinstance(source, Path):
            paths = (path for path in sorted(source.rglob("*")) if path.is_file())
            files = {path.relative_to(source).as_posix(): path.read_bytes() for path in paths}
        else:
            files = dict(source)
        commit = _sha1(repr([(path, _sha256(data)) for path, data in files.items()]).encode())
        repo.revisions[revision], repo.commits[commit] = commit, files
        return repo

    def sent(self, repo: str) -> int:
        """Bytes of bodies sent for a repo, listings included."""
        return sum(request.sent for request in self.requests if request.repo == repo)

    def fetched(self, repo: str) -> set[str]:
        """The files of a repo of which at least one byte was sent."""
        return {request.served for request in self.requests if request.repo == repo and request.sent} - {""}

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()


def _listen(hub: HubServer, handler: type[_Answers]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type(handler.__name__, (handler,), {"hub": hub}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _oid(data: bytes) -> str:
    return _sha1(b"blob %d\0" % len(data) + data)


class _Answers(BaseHTTPRequestHandler):
    """What both ports share: answers with a body that is counted."""

    hub: HubServer
    protocol_version = "HTTP/1.1"
    repo = served = ""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.repo = self.served = ""  # one handler serves all requests of a connection
        self.serve()

    def serve(self) -> None:
        raise NotImplementedError

    def answer(self, status: int, headers: Mapping[str, str], body: bytes = b"", stop_at: int | None = None) -> None:
        """Send an answer; with ``stop_at`` the connection breaks after so many bytes of it."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = b"" if self.command == "HEAD" else body[:stop_at]
        asked_for_it = "Authorization" in self.headers
        self.hub.requests.append(Request(self.command, self.repo, self.served, status, len(sent), asked_for_it))
        try:
            for begin in range(0, len(sent), _PIECE):
                self.wfile.write(sent[begin : begin + _PIECE])
                time.sleep(self.hub.delay)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        if stop_at is not None:
            self.close_connection = True

    def send_json(self, content: object) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def refuse(self, status: int, code: str, message: str = "") -> None:
        headers = {"X-Error-Code": code} if code else {}
        self.answer(status, {**headers, "X-Error-Message": message or code})

    def send_file(self, data: bytes, headers: Mapping[str, str]) -> None:
        """A file, or the range of it that was asked for; cut off where the test wants that."""
        begin, end, status = 0, len(data), 200
        extra = {}
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end, status = int(first), min(int(last) + 1 if last else len(data), len(data)), 206
            extra["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        stop_at = None
        if self.command == "GET" and self.hub.cuts.get(self.served, 0) > 0:
            self.hub.cuts[self.served] -= 1
            stop_at = (end - begin) // 2
        self.answer(status, {**headers, **extra, "Accept-Ranges": "bytes"}, data[begin:end], stop_at)


class _Hub(_Answers):
    """The Hub's own port."""

    def serve(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if self.hub.ailment == "page":
            self.answer(200, {"Content-Type": "text/html"}, b"<html>Welcome!</html>")
        elif self.hub.ailment:
            self.refuse({"down": 503, "busy": 429}[self.hub.ailment], "")
        elif parts[:2] == ["api", "models"]:
            self._about("/".join(parts[2:4]), parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self.refuse(404, "")

    def _repo_or_refusal(self, name: str) -> Repo | None:
        """The repo; otherwise the refusal has been sent."""
        self.repo = name
        repo = self.hub.repos.get(name)
        if "Authorization" in self.headers and not self.authorized:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.private and not self.authorized):
            self.refuse(404 if self.authorized else 401, "RepoNotFound", "Repository not found")
        else:
            return repo
        return None

    def _about(self, name: str, rest: list[str]) -> None:
        repo = self._repo_or_refusal(name)
        if repo is None:
            return
        kind = rest[0] if rest else "revision"
        revision = rest[1] if len(rest) > 1 else "main"
        files = repo.files(revision)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif kind == "tree":
            self.send_json([_tree_entry(path, data) for path, data in files.items()])
        else:
            described = [
                _sibling(path, data, self.hub.recorded.get(path)) | self.hub.altered.get(path, {})
                for path, data in files.items()
            ]
            commit = repo.revisions.get(revision, revision)
            self.send_json({"id": name, "modelId": name, "sha": commit, "siblings": described, "gated": repo.gated})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._repo_or_refusal(name)
        if repo is None:
            return
        self.served = path
        files = repo.files(revision)
        if repo.gated:
            self.refuse(403 if self.authorized else 401, "GatedRepo", f"Access to model {name} is restricted")
        elif files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif path not in files:
            self.refuse(404, "EntryNotFound", "Entry not found")
        else:
            self._send(repo, repo.revisions.get(revision, revision), path, files[path])

    def _send(self, repo: Repo, commit: str, path: str, data: bytes) -> None:
        if not path.endswith(LARGE):
            self.send_file(data, {"X-Repo-Commit": commit, "ETag": f'"{_oid(data)}"'})
            return
        self.answer(
            302,
            {
                "Location": f"{self.hub.cdn_url}/{repo.name}/{commit}/{path}",
                "X-Repo-Commit": commit,
                "X-Linked-Size": str(len(data)),
                "X-Linked-Etag": f'"{_sha256(data)}"',
            },
        )


class _Cdn(_Answers):
    """The port that large files come from."""

    def serve(self) -> None:
        owner, name, commit, *path = (unquote(part) for part in urlsplit(self.path).path.strip("/").split("/"))
        self.repo, self.served = f"{owner}/{name}", "/".join(path)
        data = self.hub.repos[self.repo].commits[commit][self.served]
        if "Authorization" in self.headers:
            self.refuse(400, "", "a token was sent to another host")
        else:
            self.send_file(data, {"ETag": f'"{_sha256(data)}"'})


def _sibling(path: str, data: bytes, recorded: int | None) -> dict[str, object]:
    entry: dict[str, object] = {"rfilename": path, "size": recorded or len(data), "blobId": _oid(data)}
    if path.endswith(LARGE):
        entry["lfs"] = {"sha256": _sha256(data), "size": len(data), "pointerSize": 134}
    return entry


def _tree_entry(path: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
    if path.endswith(LARGE):
        entry["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 134}
    return entry
