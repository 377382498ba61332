"""Chat templates: our interpreter against Python's jinja2, live, case by case."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import jinja_reference as reference  # noqa: E402

MODELS = pathlib.Path(os.environ["KVASIR_MODELS"])
SOURCES = ["tests/tools/render_template.c", *map(str, sorted((ROOT / "src/model/template").glob("*.c"))),
           "src/model/text_ranges.c", *("src/base/%s.c" % name for name in ("arena", "mem", "strbuf", "status", "utf8"))]


@pytest.fixture(scope="session")
def renderer(tmp_path_factory):
    """The helper program, built by itself."""
    program = tmp_path_factory.mktemp("template") / "render_template"
    subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-D_GNU_SOURCE", "-Isrc", "-O1", *SOURCES, "-ljansson", "-lm", "-o", program],
                   cwd=ROOT, check=True, timeout=300)
    return program


def ours(program, jobs):
    lines = "".join(json.dumps({"now": reference.NOW, **job}) + "\n" for job in jobs)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def difference(template, context, got):
    """None where both agree: on the text, on the template's own refusal, or on failing."""
    try:
        expected = reference.render(template, context)
    except reference.Refused as refused:
        return None if got.get("error") == str(refused) else (str(refused), got)
    if expected is None:
        return None if "error" in got else ("an error", got)
    return None if got.get("text") == expected else (expected, got)


@pytest.mark.parametrize("name", ["cases.json", "conversations.json"])
def test_same_as_jinja(renderer, name):
    cases = [case for case in reference.load(name) if "code" not in case]
    templates = [(reference.DATA / c["file"]).read_text() if "file" in c else c["template"] for c in cases]
    results = ours(renderer, [{"template": t, "context": c["context"]} for t, c in zip(templates, cases)])
    assert len(results) == len(cases) > 100
    wrong = {c["name"]: d for c, t, got in zip(cases, templates, results)
             if (d := difference(t, c["context"], got))}
    assert not wrong


@pytest.mark.parametrize("name", ["cases.json", "conversations.json"])
def test_committed_outputs_are_jinjas(name):
    for case in reference.load(name):
        if "code" in case:
            continue
        template = (reference.DATA / case["file"]).read_text() if "file" in case else case["template"]
        try:
            assert case["expected"] == reference.render(template, case["context"]), case["name"]
        except reference.Refused as refused:
            assert case["refused"] == str(refused), case["name"]


def metadata_string(path, key):
    """A string of a GGUF file's metadata."""
    data = path.open("rb").read(32 << 20)
    at = data.find(key.encode() + (8).to_bytes(4, "little"))
    if at < 0:
        return None
    at += len(key) + 4
    size = int.from_bytes(data[at:at + 8], "little")
    return data[at + 8:at + 8 + size].decode()


def test_template_of_smollm2(renderer):
    files = sorted(MODELS.glob("*[sS]mol[lL][mM]2*.gguf"))
    assert files, f"no SmolLM2 in {MODELS}; `make models` fetches it"
    template = metadata_string(files[0], "tokenizer.chat_template")
    jobs = [{"template": template, "context": {**case["context"], "messages": [m for m in case["context"]["messages"] if m["content"]]}}
            for case in reference.load("conversations.json") if case["file"] == "smollm2-style.jinja"]
    results = ours(renderer, jobs)
    assert sum("text" in r for r in results) >= 10
    assert not [d for job, got in zip(jobs, results) if (d := difference(job["template"], job["context"], got))]


def test_case_mapping_is_pythons(renderer):
    """Letters of the scripts that the interpreter knows: one job for each block."""
    for first, last in ((0x20, 0x17F), (0x386, 0x3CE), (0x400, 0x52F), (0x531, 0x587), (0x1E00, 0x1EFF), (0xFF21, 0xFF5A)):
        text = " ".join(chr(c) for c in range(first, last + 1) if len(chr(c).upper()) == len(chr(c).lower()) == 1)
        got = ours(renderer, [{"template": "{{ t|upper }}|{{ t|lower }}", "context": {"t": text}}])[0]["text"]
        assert got == text.upper() + "|" + " ".join(c.lower() for c in text.split(" ")), hex(first)


def test_numbers_print_as_in_python(renderer):
    values = [s * m * 10.0 ** e for e in range(-30, 31, 3) for m in (1.0, 1.1, 123456789.0, 9.999999999999999) for s in (1, -1)]
    got = ours(renderer, [{"template": "{% for v in values %}{{ v }} {{ v|round(3) }}\n{% endfor %}", "context": {"values": values}}])[0]["text"]
    assert got.splitlines() == [f"{v} {round(v, 3)}" for v in values]


def test_random_expressions(renderer):
    """Slices, arithmetic and formats over many operands, in one template each."""
    numbers = [-7, -2, -1, 0, 1, 3, 10, 2.5, -0.5, 1e15]
    pairs = [(a, b) for a in numbers for b in numbers if b]
    template = "{% for a, b in pairs %}{{ a // b }} {{ a % b }} {{ a / b }} {{ a < b }} {{ a - b }} {{ a * b }}\n{% endfor %}"
    jobs = [{"template": template, "context": {"pairs": pairs}}]
    for step in (-3, -1, 1, 2):
        jobs.append({"template": "{% for i in range(-6, 7) %}{% for j in range(-6, 7) %}{{ t[i:j:s] }},{{ l[i:j:s] }};{% endfor %}{% endfor %}",
                     "context": {"t": "añb日c", "l": [1, 2, 3, 4], "s": step}})
    results = ours(renderer, jobs)
    assert not [d for job, got in zip(jobs, results) if (d := difference(job["template"], job["context"], got))]
