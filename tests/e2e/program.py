"""The program under test, and the models that the tests use."""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
KVASIR = str(ROOT / "kvasir")
SMOLLM, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"


def kvasir(*words, text="", timeout=300, **more):
    return subprocess.run([KVASIR, *map(str, words)], input=text, capture_output=True, text=True, timeout=timeout, **more)


def works(*words, **more):
    done = kvasir(*words, **more)
    assert done.returncode == 0, done.stderr
    return done


def works_json(*words, **more):
    return json.loads(works(*words, "--json", **more).stdout)


def fails(status, *words, says, **more):
    """Exit status, a message on stderr that says something, nothing on stdout."""
    done = kvasir(*words, **more)
    assert done.returncode == status, (done.returncode, done.stderr)
    assert done.stdout == "" and says in done.stderr, done.stderr
    return done.stderr
