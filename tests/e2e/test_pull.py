"""kvasir pull against a server that behaves well and badly."""
import fcntl
import hashlib
import json
import os
import pty
import resource
import select
import signal
import subprocess
import threading

import pytest

from program import KVASIR, kvasir
from pull_site import DATA, OTHER, SHA, Site, fails, files, pulls, start_pull, wait_for
from pull_site import models, site  # noqa: F401 (fixtures)


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
