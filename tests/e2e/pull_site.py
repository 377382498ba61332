"""A local HTTP server that behaves well and badly, and `kvasir pull` from it into a folder of the test's own.

A test file that uses the fixtures imports them: `from pull_site import models, site`.
"""
import hashlib
import http.server
import json
import os
import random
import subprocess
import threading
import time

import pytest

from program import KVASIR, kvasir

DATA = b"GGUF" + random.Random(1).randbytes(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
OTHER = b"GGUF" + random.Random(2).randbytes(2_000_000)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server.site
        with site.lock:
            site.requests.append((self.path, dict(self.headers)))
        name = self.path.split("?")[0].lstrip("/")
        getattr(self, "do_" + name.split("/")[0].split(".")[0].replace("-", "_"), self.missing)()

    def missing(self):
        self.answer(404, b"<html>no such page</html>")

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, data, etag='"v1"', limit=None, honest=True, **headers):
        """The file or the range asked for; limit: break the connection after so many bytes of this answer."""
        wanted = self.headers.get("Range")
        matches = self.headers.get("If-Range") in (None, etag)
        first = int(wanted[len("bytes="):-1]) if wanted and (matches or not honest) else 0
        if first >= len(data):
            return self.answer(416, Content_Range=f"bytes */{len(data)}")
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        if etag:
            self.send_header("ETag", etag)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        end = len(data) if limit is None else min(len(data), first + limit)
        self.server.site.serve(self.wfile, data[first:end])
        if end < len(data):
            self.close_connection = True

    def do_good(self):
        self.send_file(DATA)

    def do_linked(self):
        self.answer(302, Location="/good.gguf", X_Linked_Etag=f'"{SHA}"')

    def do_linked_wrong(self):
        self.answer(302, Location="/good.gguf", X_Linked_Etag=f'"{"0" * 64}"')

    def do_breaks(self):
        self.send_file(DATA, limit=1_000_000)

    def do_breaks_once(self):
        first_time = sum(path == self.path for path, _ in self.server.site.requests) == 1
        self.send_file(DATA, limit=1_000_000 if first_time else None)

    def do_breaks_untagged(self):
        self.send_file(DATA, etag=None, limit=1_000_000)

    def do_stuck(self):
        self.send_file(DATA, limit=0 if self.headers.get("Range") else 1_000_000)

    def do_changes(self):
        """Another version, on a server that looks at If-Range (and, with ?careless, on one that does not)."""
        site = self.server.site
        honest = "careless" not in self.path
        if site.version == 1:
            self.send_file(DATA, etag='"v1"')
        else:
            self.send_file(OTHER, etag='"v2"', honest=honest)

    def do_page(self):
        self.answer(200, b"<!doctype html><html>please log in</html>")

    def do_empty(self):
        self.answer(200)

    def do_private(self):
        self.answer(401, b"no")

    def do_busy(self):
        self.answer(503, b"later")

    def do_circle(self):
        self.answer(302, Location=self.path)

    def do_to_file(self):
        self.answer(302, Location="file:///etc/passwd")

    def do_huge(self):
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 60))
        self.end_headers()
        self.wfile.write(DATA[:100_000])
        self.close_connection = True

    def do_chunked(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.site.serve(self.wfile, b"%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA))

    def do_owner(self):  # the hub: owner/repo/resolve/main/...
        if self.path != "/owner/repo/resolve/main/dir/a%20model.gguf":
            return self.missing()
        if "other" in self.server.site.__dict__:
            return self.answer(302, Location=self.server.site.other.url("good.gguf"), X_Linked_Etag=f'"{SHA}"')
        self.send_file(DATA)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that leave in the middle are what the tests are about
        pass


class Site:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests = []
        self.version = 1
        self.hold_after = None  # bytes after which an answer waits for `release`
        self.release = threading.Event()
        self.holding = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.site = self
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path):
        return f"http://127.0.0.1:{self.server.server_address[1]}/{path}"

    def serve(self, out, data):
        try:
            if self.hold_after is not None:
                out.write(data[:self.hold_after])
                out.flush()
                self.holding.set()
                assert self.release.wait(60)
                data = data[self.hold_after:]
            out.write(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def ranges(self):
        return [headers.get("Range") for _, headers in self.requests]

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site():
    site = Site()
    yield site
    site.close()


@pytest.fixture
def models(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "models"
    monkeypatch.setenv("KVASIR_MODELS", str(folder))
    for name in list(os.environ):
        if name in ("HF_TOKEN", "HF_ENDPOINT") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return folder


def files(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def pulls(*words, **more):
    done = kvasir("pull", *words, "--json", **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(*words, code=1, **more):
    done = kvasir("pull", *words, **more)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    return done.stderr


def start_pull(*words):
    return subprocess.Popen([KVASIR, "pull", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about")
