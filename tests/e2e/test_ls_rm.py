"""kvasir ls and rm, and where models live."""
import json

from program import kvasir
from pull_site import DATA, files, pulls
from pull_site import models, site  # noqa: F401 (fixtures)


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
