"""kvasir tokenize and detokenize: both ways over the reference tokens, the other forms of input and output, and bad input."""

import json
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_tiny_gguf as tiny  # noqa: E402

SMOLLM, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"
REFERENCE = {SMOLLM: "tokens-smollm2.jsonl", GEMMA: "tokens-gemma3.jsonl"}


def kvasir(*words, text=b""):
    return subprocess.run([ROOT / "kvasir", *words], input=text, capture_output=True, timeout=60)


def works(*words, text=b""):
    done = kvasir(*words, text=text)
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    return done.stdout


def fails(*words, text=b"", status=1):
    done = kvasir(*words, text=text)
    assert done.returncode == status
    return done.stderr.decode()


def lines(values, **how):
    return "".join(json.dumps(v, **how) + "\n" for v in values).encode()


@pytest.mark.parametrize("model", REFERENCE)
def test_reference_tokens_both_ways(model):
    path = ROOT / "tests/data" / REFERENCE[model]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    assert len(rows) == 320
    texts = [row["text"] for row in rows]
    for kind, options in (("plain", []), ("special", ["--special"])):
        want = [row[kind] for row in rows]
        for ascii_only in (True, False):
            out = works("tokenize", model, "--jsonl", *options, text=lines(texts, ensure_ascii=ascii_only))
            assert [json.loads(line) for line in out.splitlines()] == want
        out = works("detokenize", model, "--jsonl", text=lines(want))
        assert [json.loads(line) for line in out.split(b"\n")[:-1]] == texts


def test_a_long_line():
    text = "a" * (1 << 20)
    ids = works("tokenize", SMOLLM, "--jsonl", text=lines([text]))
    assert len(json.loads(ids)) == 1 << 18
    assert json.loads(works("detokenize", SMOLLM, "--jsonl", text=ids)) == text


def test_text_from_argument_and_input():
    assert works("tokenize", SMOLLM, "Hello world") == b'  19556  "Hello"\n    905  " world"\n'
    assert works("tokenize", SMOLLM, text=b"Hello world") == works("tokenize", SMOLLM, "Hello world")
    assert works("tokenize", SMOLLM, "") == b""
    assert works("tokenize", SMOLLM, text=b"\n\xc3\x1b") == b'    198  "\\n"\n    142  "\\xC3"\n    212  "\\x1B"\n'
    assert works("tokenize", SMOLLM, "--count", "Hello world") == b"2\n"
    found = json.loads(works("tokenize", GEMMA, "--json", "--special", "a<h1>\U0001f600"))
    assert found == {"count": 4, "ids": [2, 236746, 184, 242398], "pieces": ["<bos>", "a", "<h1>", "\U0001f600"], "dropped_bytes": 0}


def test_control_tokens_only_where_asked_for():
    assert 1 not in json.loads(works("tokenize", SMOLLM, "--json", "<|im_start|>"))["ids"]
    assert json.loads(works("tokenize", SMOLLM, "--json", "--special", "<|im_start|>"))["ids"] == [1]


def test_ids_from_arguments_and_input():
    assert works("detokenize", SMOLLM, "19556", "905") == b"Hello world"
    for text in (b"19556 905", b"[19556, 905]\n", b"19556,\n905"):
        assert works("detokenize", SMOLLM, text=text) == b"Hello world"
    assert works("detokenize", SMOLLM, text=b"") == b""
    assert works("detokenize", GEMMA, "2", "236746") == b"a"
    assert works("detokenize", GEMMA, "--all", "2", "236746") == b"<bos>a"


def test_bytes_that_are_not_utf8():
    text = bytes(range(0xE0, 0xF1)) + b" a\xe4\xb8"
    ids = json.loads(works("tokenize", SMOLLM, "--json", text=text))["ids"]
    assert works("detokenize", SMOLLM, *map(str, ids)) == text
    assert json.loads(works("detokenize", SMOLLM, "--jsonl", text=lines([ids]))) == "\ufffd" * 17 + " a" + "\ufffd"


def test_broken_utf8_reads_as_in_python():
    random.seed(3)
    alphabet = [b"a", b" ", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xc3", *(bytes([b]) for b in b"\x80\x82\x8f\x9f\xa0\xbf\xe0\xe2\xed\xf0\xf4\xff")]
    texts = [b"\xf0\x9f", b"\xe3\x83", b"\xe2\x82\xc3\xa9"] + [b"".join(random.choices(alphabet, k=random.randint(1, 12))) for _ in range(60)]
    by_byte = {}
    for b in {b for text in texts for b in text}:
        by_byte[b] = json.loads(works("tokenize", GEMMA, "--json", text=bytes([b])))["ids"]
    ids = [[i for b in text for i in by_byte[b]] for text in texts]
    got = [json.loads(line) for line in works("detokenize", GEMMA, "--jsonl", text=lines(ids)).splitlines()]
    assert got == [text.decode("utf-8", "replace") for text in texts]
    pieces = json.loads(works("tokenize", GEMMA, "--json", text=b"\xf0\x9f"))["pieces"]
    assert pieces == ["\ufffd", "\ufffd"]


def test_bytes_without_a_token_are_counted():
    done = kvasir("tokenize", SMOLLM, "--json", text=b"a\x04\xffb\xc0")
    assert done.returncode == 0 and json.loads(done.stdout)["dropped_bytes"] == 3
    assert done.stderr == b"kvasir: bytes that have no token in this vocabulary were left out: 3\n"
    assert json.loads(works("tokenize", SMOLLM, "--json", "a b"))["dropped_bytes"] == 0
    missing = bytes(b for b in range(256) if kvasir("tokenize", SMOLLM, "--count", text=bytes([b])).stdout == b"0\n")
    assert missing == bytes([4, 6, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)])
    assert json.loads(works("tokenize", GEMMA, "--json", text=missing))["dropped_bytes"] == 0
    done = kvasir("tokenize", SMOLLM, "--jsonl", text=lines(["a", "\x04", "b\x06"]))
    assert done.stdout == b"[81]\n[]\n[82]\n" and done.stderr.count(b"left out: 1\n") == 2


def test_bad_lines_are_named():
    assert "line 2 of standard input: not JSON" in fails("tokenize", SMOLLM, "--jsonl", text=b'"a"\n"b\n')
    assert "line 1 of standard input: not JSON (a zero byte)" in fails("tokenize", SMOLLM, "--jsonl", text=b'"a"\0\n')
    assert "line 1 of standard input: not JSON (a zero byte)" in fails("detokenize", SMOLLM, "--jsonl", text=b"[12\x003]\n")
    assert "line 1 of standard input: not a JSON string" in fails("tokenize", SMOLLM, "--jsonl", text=b"[1]\n")
    assert "line 1 of standard input: not JSON" in fails("tokenize", SMOLLM, "--jsonl", text=b'"\\ud800"\n')
    assert "line 3 of standard input: not JSON" in fails("tokenize", SMOLLM, "--jsonl", text=b'"a"\n"b"\n\n')
    assert "line 1 of standard input: not a JSON array" in fails("detokenize", SMOLLM, "--jsonl", text=b'"a"\n')
    for bad in ("[1, 49152]", "[0, -1]", "[0, 1.0]", '[0, "1"]', "[0, 1e3]"):
        assert "line 1 of standard input: entry 1 is no token id (0 to 49151)" in fails("detokenize", SMOLLM, "--jsonl", text=bad.encode())
    done = kvasir("tokenize", SMOLLM, "--jsonl", text=b'"a"\nx\n')
    assert done.stdout == b"[81]\n"  # what came before it was answered


def test_bad_ids():
    for bad in ("49152", "-1x", "x", "1x", "99999999999999999999"):
        assert f'"{bad}" is no token id' in fails("detokenize", SMOLLM, text=bad.encode())


def test_usage():
    assert "--jsonl" in fails("tokenize", SMOLLM, "--jsonl", "text", status=2)
    assert "--jsonl" in fails("tokenize", SMOLLM, "--jsonl", "--count", status=2)
    assert "--jsonl" in fails("detokenize", SMOLLM, "--jsonl", "1", status=2)
    fails("tokenize", status=2)


def test_files_without_a_usable_tokenizer(tmp_path):
    def file(name, *kvs):
        g = tiny.Gguf()
        for kv in kvs:
            g.kv(*kv)
        path = tmp_path / name
        path.write_bytes(g.bytes())
        return path

    model = ("tokenizer.ggml.model", tiny.STRING, "gpt2")
    assert "tokenizer.ggml.model" in fails("tokenize", file("none.gguf"), "a")
    assert '"bert"' in fails("tokenize", file("bert.gguf", ("tokenizer.ggml.model", tiny.STRING, "bert")), "a")
    assert '"tekken"' in fails("tokenize", file("pre.gguf", model, ("tokenizer.ggml.pre", tiny.STRING, "tekken")), "a")
    assert "tokenizer.ggml.tokens" in fails("tokenize", file("empty.gguf", model), "a")
    assert "no such" in fails("tokenize", tmp_path / "missing.gguf", "a")
