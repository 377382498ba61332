"""What the documents name is there: commands and their options, files, tests, endpoints, fields, metrics; and what is there is named."""
import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from program import KVASIR, ROOT, works
from serving import Server

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/SERVER.md", "docs/KV_FORMATS.md", "docs/PERFORMANCE.md"]
TEXT = {name: (ROOT / name).read_text() for name in DOCUMENTS}
SERVER = TEXT["docs/SERVER.md"]


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", SERVER, re.S | re.M)[1]


def code(text):
    """What stands between backquotes."""
    return re.findall(r"`([^`\n]+)`", text)


def options_of(words):
    return set(re.findall(r"--[a-z][a-z0-9-]*", works(*words, "--help").stdout))


def words_of_the_sources():
    """Every word of C, and the names of the tests."""
    sources = [p for folder in ("src", "include", "tests") for p in (ROOT / folder).rglob("*.[ch]")]
    return set(re.findall(r"\w+", "".join(p.read_text() for p in sources))) | {p.stem for p in (ROOT / "tests").glob("*/test_*")}


def test_shown_command_lines_parse():
    """Every line that begins with kvasir: the command is there and has the options."""
    known, n = {}, 0
    for name, text in TEXT.items():
        for line in re.findall(r"^    (?:\$ )?(?:.*\| )?(?:\./)?kvasir (.*)", text, re.M):
            words = line.split()
            command = words[:2] if words[:2] in (["bench", "serve"], ["sim", "cache"]) else words[:1]
            options = known.setdefault(tuple(command), options_of(command))
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", line):
                assert option in options, (name, line)
                n += 1
    assert n > 15 and len(known) > 10


def test_options_in_prose_exist():
    """`--x` names an option of some command, of the tools beside them, or of the programs that are compared."""
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", works("help").stdout, re.M)
    assert {"run", "serve", "bench serve"} <= set(commands)
    every = set().union(*(options_of(c.split()) for c in commands if c != "help"))
    for name in ("bench/compare.py", "bench/compare_serve.py", "bench/plot.py"):
        every |= set(re.findall(r'"(--[a-z][a-z0-9-]*)"', (ROOT / name).read_text()))
    for name in DOCUMENTS[:5]:
        for span in code(TEXT[name]):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", span):
                if not span.startswith(("make", "CHECK=")):
                    assert option in every, (name, span)


def test_tests_and_files_that_are_named_exist():
    text = "".join(TEXT.values())
    known = words_of_the_sources() | {"test_x", "test_"}  # patterns of names
    for word in set(re.findall(r"\btest_[a-z0-9_]*", text)):
        assert word in known, word
    paths = set(re.findall(r"\b(?:src|tests|tools|docs|bench|include|scripts)/[\w/]+\.(?:c|h|py|md|svg)\b", text))
    assert len(paths) > 10
    for path in paths:
        assert (ROOT / path.replace("cmd_NAME", "cmd_run").replace("test_x.py", "test_cli.py")).exists(), path


def test_functions_that_are_named_exist():
    """Names with an underscore between backquotes, and those of the drawing of a step, stand in the sources."""
    words = words_of_the_sources()
    named = {w for name in ("docs/ARCHITECTURE.md", "docs/KV_FORMATS.md", "CONTRIBUTING.md") for span in code(TEXT[name])
             for w in re.findall(r"\b[a-z]+_\w*[a-z0-9]\b", span) if "test_x" not in span and "<" not in span}
    drawing = re.search(r"with the functions that make it:\n\n(.*?)\n\n", TEXT["docs/ARCHITECTURE.md"], re.S)[1]
    drawn = re.findall(r"^ *(\w+)(?:, (\w+))? ", drawing, re.M)
    assert len(named) > 30 and len(drawn) > 12
    for name in sorted(named | {w for pair in drawn for w in pair if w}):
        assert name in words, name


def row(title):
    return re.search(rf"^\| {title} \| (.*) \|", TEXT["README.md"], re.M)[1]


def test_what_runs_is_what_the_tables_hold():
    types = re.findall(r'\[DTYPE_\w+\] = \{"(\w+)"', (ROOT / "src/kernel/dtype.c").read_text())
    assert row("weights").split(";")[0].split(", ") == types
    architectures = re.findall(r'^    \{"(\w+)", "', (ROOT / "src/model/arch.c").read_text(), re.M)
    assert re.sub(r" \([^)]*\)|;.*", "", row("architectures")).split(", ") == architectures
    shown = re.search(r"--kv FORMAT .*?\(([^;]*); default (\w+)\)", re.sub(r"\s+", " ", works("run", "--help").stdout))
    assert row("cache formats").replace(" (the default)", "") == shown[1] and row("cache formats").startswith(f"{shown[2]} (the default)")


def table(source, pattern):
    return re.findall(pattern, (ROOT / "src/serve" / source).read_text())


def test_fields_are_the_ones_of_the_tables():
    fields = section("Fields of a request") + section("Fields of other servers")
    told = {w for span in code(fields) for w in re.findall(r"^[a-z_]+(?:\.[a-z_]+)?$", span)}
    for name in table("request_fields.c", r'\n    \{"([\w.]+)", (?:IN_|PLACE)'):
        assert name in told or f"`{name}`" in section("Endpoints"), f"docs/SERVER.md doesn't tell of {name}"
    known = table("request_known.c", r'\n    \{"([\w.]+)", [^}]*\}')
    assert len(known) > 60
    for name in known:
        assert name in told, f"docs/SERVER.md doesn't tell of {name}"


@pytest.fixture(scope="module")
def server():
    with Server("--ctx", 256, "--kv-memory", "64M") as s:
        s.complete("A word")
        yield s


def test_endpoints(server):
    told = {(m, p) for line in re.findall(r"^\| ((?:GET|POST) [^|]*)\|", section("Endpoints"), re.M)
            for m in [line.split()[0]] for p in re.findall(r"/[\w/-]+", line)}
    there = {(m, p.rstrip("/")) for m, p in table("http.c", r'\{"(GET|POST)", "([^"]+)"')}
    assert {(m, p.replace("/NAME", "")) for m, p in told} == there
    for method, path in there:
        assert server.request(method, path).status not in (404, 405), path


def test_metrics(server):
    text = section("Metrics").split("In /v1/kv")[0]
    told = {"kvasir_" + re.sub(r"\{.*", "", w).removeprefix("kvasir_").lstrip("_") for w in code(text) if re.match(r"(kvasir)?_", w)}
    kinds = {f.name: f.type for f in text_string_to_metric_families(server.get("/metrics").text)}
    assert told == {name + ("_total" if kind == "counter" else "") for name, kind in kinds.items()}


def test_fields_of_kv(server):
    body = server.get("/v1/kv").json
    for name in ("capacity_tokens", "longest_sequence_tokens", "bytes"):
        assert f"`{name}`" in SERVER and name in body
    tree = body["tree"]
    assert tree["inserted"] - tree["evicted"] - tree["absorbed"] == tree["blocks"] and "tails" in tree


def test_limits_are_the_defaults():
    """Figures beside an option are its default."""
    text = subprocess.run([KVASIR, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\s+", " ", text)
    for option, figure, shown in [("parallel", "32", "`--parallel` is 32"), ("itl-target", "150", "`--itl-target` (150 ms)"),
                                  ("max-body", "16M", "`--max-body` (16 MiB)"), ("min-priority", "0", "`--min-priority` (0)")]:
        assert re.search(rf"--{option} .*?default ([^)]*)\)", text)[1] == figure
        assert shown in SERVER


def test_the_library_example_runs(tmp_path):
    """README's program and the line that compiles it, against the static library."""
    program = re.search(r"```c\n(.*?)```", TEXT["README.md"], re.S)[1]
    (tmp_path / "example.c").write_text(program)
    line = re.search(r"^    (cc -Iinclude example\.c build/.*)", TEXT["README.md"], re.M)[1]
    library = max(ROOT.glob("build/release*/libkvasir.a"), key=lambda p: p.stat().st_mtime).relative_to(ROOT)
    line = line.replace("example.c", str(tmp_path / "example.c")).replace("-o example", f"-o '{tmp_path}/example'")
    line = line.replace("build/release/libkvasir.a", str(library))
    subprocess.run(line, shell=True, check=True, cwd=ROOT)
    done = subprocess.run([tmp_path / "example", ROOT / "tests/data/tiny/llama.gguf"], capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    assert len(done.stdout) > 1, "tokens, and the line's end"
