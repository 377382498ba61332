"""kvasir run: real answers, where the text goes, determinism, stops, and prompts that can't be."""
import json
import os
import signal
import subprocess
import sys

import pytest

from program import GEMMA, KVASIR, ROOT, SMOLLM, fails, kvasir, works, works_json

GREEDY = ("--temperature", "0")


def test_a_real_model_answers():
    done = works("run", SMOLLM, "Where is the Eiffel Tower?", *GREEDY, "-n", "24")
    assert "Paris" in done.stdout and done.stdout.endswith("\n")
    for word in ("prompt ", "tokens/s", "first token", "context", "/ 8192", "cache", "GB/s"):
        assert word in done.stderr
    assert "Paris" in works("run", GEMMA, "The capital of France is the city of", *GREEDY, "-n", "16").stdout


def test_json_has_the_text_and_the_figures():
    plain = works("run", SMOLLM, "Name three colors.", *GREEDY, "-n", "20", "--quiet")
    assert plain.stderr == ""
    done = works_json("run", SMOLLM, "Name three colors.", *GREEDY, "-n", "20")
    assert done["text"].rstrip("\n") == plain.stdout.rstrip("\n")
    assert done["generated_tokens"] <= 20 and done["finish"] in ("eos", "length")
    assert done["context_used"] == done["prompt_tokens"] + done["generated_tokens"]
    assert done["cache_bytes"] > 0 and done["first_token_s"] > 0 and done["context"] == 8192


def test_prompt_from_argument_file_and_standard_input(tmp_path):
    (tmp_path / "p").write_text("Tell me a joke.")
    options = ("--seed", "3", "-n", "12", "--quiet")
    want = works("run", SMOLLM, "Tell me a joke.", *options).stdout
    assert want == works("run", SMOLLM, "--file", tmp_path / "p", *options).stdout
    assert want == works("run", SMOLLM, *options, text="Tell me a joke.").stdout
    assert want == works("run", SMOLLM, "-f", "-", *options, text="Tell me a joke.").stdout


def test_the_answer_is_a_function_of_prompt_and_settings():
    options = ("--temperature", "1.2", "--top-k", "0", "--top-p", "1", "-n", "24", "--quiet")
    want = works("run", SMOLLM, "Once upon a time", "--seed", "7", *options).stdout
    for other in (("--threads", "1"), ("--threads", "3"), ("--chunk", "3"), ("--block-size", "8"), ("--ctx", "512")):
        assert works("run", SMOLLM, "Once upon a time", "--seed", "7", *options, *other).stdout == want, other
    assert works("run", SMOLLM, "Once upon a time", "--seed", "8", *options).stdout != want


def test_raw_goes_on_where_the_text_stops():
    raw = works_json("run", SMOLLM, "--raw", "One, two, three,", *GREEDY, "-n", "4")
    assert "four" in raw["text"] and raw["prompt_tokens"] < 10
    assert works_json("run", SMOLLM, "One, two, three,", *GREEDY, "-n", "4")["prompt_tokens"] > 20
    assert works_json("run", SMOLLM, "--raw", "<|im_start|>", "-n", "1")["prompt_tokens"] > 1
    assert works_json("run", SMOLLM, "--raw", "--parse-special", "<|im_start|>", "-n", "1")["prompt_tokens"] == 1


def test_system_message_and_another_template(tmp_path):
    system = works_json("run", SMOLLM, "Hi", "-n", "1", "--system", "You are a pirate.")["prompt_tokens"]
    longer = works_json("run", SMOLLM, "Hi", "-n", "1", "--system", "You are a pirate. You are a pirate.")["prompt_tokens"]
    assert longer == system + 5
    (tmp_path / "t").write_text("{{ messages[0].content }}")
    assert works_json("run", SMOLLM, "Hi", "-n", "1", "--chat-template", tmp_path / "t")["prompt_tokens"] == 1
    (tmp_path / "t").write_text("line one\n{% include 'x' %}")
    error = fails(1, "run", SMOLLM, "Hi", "--chat-template", tmp_path / "t", says="include")
    assert "line 2" in error or ":2" in error
    (tmp_path / "t").write_text("{{ raise_exception('no such role') }}")
    fails(1, "run", SMOLLM, "Hi", "--chat-template", tmp_path / "t", says="no such role")


def test_stops_and_limits():
    def run(*options):
        return works_json("run", SMOLLM, "--raw", "1 2 3 4 5 6", *GREEDY, *options)
    whole = run("-n", "12")
    assert whole["generated_tokens"] == 12 and whole["finish"] == "length"
    stop = whole["text"][5:8]
    cut = run("-n", "12", "--stop", stop)
    assert cut["finish"] == "stop" and cut["text"] == whole["text"][:whole["text"].index(stop)]
    assert run("-n", "0")["text"] == ""
    assert run("-n", "1")["generated_tokens"] == 1
    full = run("--ctx", "20", "--ignore-eos")
    assert full["finish"] == "context" and full["context_used"] == 20
    window = run("--ctx", "24", "-n", "60", "--overflow", "window", "--ignore-eos")
    assert window["generated_tokens"] == 60 and window["context_used"] <= 24
    assert "dropped" in works("run", SMOLLM, "--raw", "1 2 3", "--ctx", "16", "-n", "20", "--overflow", "window", "--ignore-eos").stderr
    first = works_json("tokenize", SMOLLM, whole["text"])
    ids = first["ids"] if isinstance(first, dict) else first
    ids = [t["id"] if isinstance(t, dict) else t for t in ids]
    banned = run("-n", "12", "--logit-bias", f"{ids[0]}=-inf")
    assert banned["text"] != whole["text"]


def test_sampling_options_take_effect():
    def text(*options):
        return works("run", SMOLLM, "--raw", "The list: apple, apple, apple,", "-n", "24", "--quiet", *options).stdout
    greedy = text(*GREEDY)
    for options in (("--repeat-penalty", "1.5"), ("--presence-penalty", "8"), ("--frequency-penalty", "4"), ("--dry-multiplier", "4")):
        assert text(*GREEDY, *options) != greedy, options
    assert text("--top-k", "1", "--temperature", "2") == greedy
    hot = ("--temperature", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "5")
    plain = text(*hot)
    for options in (("--top-k", "3"), ("--top-p", "0.3"), ("--min-p", "0.3"), ("--typical-p", "0.3"), ("--xtc-probability", "1")):
        assert text(*hot, *options) != plain, options


def test_prompts_that_can_not_be(tmp_path):
    fails(1, "run", SMOLLM, "--raw", "", says="empty")
    fails(1, "run", SMOLLM, text="", says="empty")
    fails(1, "run", SMOLLM, "--raw", text="\x04\x06", says="none of its 2 bytes has a token")
    fails(1, "run", GEMMA, "", says="empty")  # a model that begins every text with a token has none here either
    fails(1, "run", SMOLLM, "word " * 50, "--ctx", "32", says="context holds 32")
    fails(1, "run", SMOLLM, "hello", "--kv-memory", "4K", says="--kv-memory")
    fails(1, "run", SMOLLM, "hello", "--ctx", "1000000", "--kv-memory", "1M", says="1000000 tokens")
    fails(1, "run", SMOLLM, "hello", "--file", tmp_path / "x", says="not both")
    fails(1, "run", SMOLLM, "--file", tmp_path / "x", says="no such file")
    fails(1, "run", SMOLLM, "--file", tmp_path, says="directory")
    fails(1, "run", "no-such-model", "hello", says="no-such-model")
    fails(1, "run", SMOLLM, "x", "--logit-bias", "12", says="ID=BIAS")
    fails(1, "run", SMOLLM, "x", "--logit-bias", "99999999=1", says="vocabulary")
    fails(2, "run", SMOLLM, "x", "--top-p", "1.5", says="--top-p")
    fails(2, "run", says="MODEL")


def test_damaged_weights_are_no_answer(tmp_path):
    path = tmp_path / "damaged.gguf"
    data = (ROOT / "tests/data/tiny/llama.gguf").read_bytes()
    path.write_bytes(data[:-64] + b"\xff" * 64)  # the last rows of output.weight
    fails(1, "run", path, "hello", "--quiet", says="damaged")
    fails(1, "logits", path, "--out", tmp_path / "out", text="[1, 2]", says="damaged")
    assert not (tmp_path / "out").exists()


def test_models_that_are_none(tmp_path):
    data = (ROOT / "tests/data").joinpath("tokens-smollm2.jsonl").read_bytes()
    for name, content, says in (("empty", b"", "empty"), ("text", data, "GGUF"), ("head", b"GGUF\3\0\0\0", "")):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        assert str(path) in fails(1, "run", path, "hello", says=says)
    fails(1, "run", tmp_path, "hello", says="directory")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    fails(1, "run", "folder", "hello", says="folder is a directory", cwd=tmp_path)
    fails(1, "run", "pipe", "hello", says="pipe is not a regular file", cwd=tmp_path)
    model = os.path.realpath(works_json("ls")["directory"] + f"/{SMOLLM}.gguf")
    cut = tmp_path / "cut.gguf"
    with open(model, "rb") as f:
        cut.write_bytes(f.read(10_000_000))
    assert "again" in fails(1, "run", cut, "hello", says="incomplete")
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(b"GGUF")
    secret.chmod(0)
    if os.geteuid() != 0:
        fails(1, "run", secret, "hello", says="permission")


def test_memory_is_weights_cache_logits_and_little_more():
    code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    rows = 9 * 4  # bytes a token of the vocabulary: a row of logits, its copy, and the sampler's seven
    for model, file, vocabulary in ((SMOLLM, 98_362_432, 49152), (GEMMA, 253_113_024, 262144)):
        size = works_json("size", model, "--context", "64")
        peak = subprocess.run([sys.executable, "-c", code, KVASIR, "run", model, "--raw", "One two three", "-n", "16", "-c", "64", "-q"],
                              capture_output=True, text=True, check=True)
        known = file + size["cache_bytes"] + rows * vocabulary
        assert size["weights_bytes"] < int(peak.stdout) * 1024 < known + 32e6


def test_a_reader_that_leaves_and_a_full_disk():
    with open("/dev/full", "w") as full:
        done = subprocess.run([KVASIR, "run", SMOLLM, "Hi", "-n", "4", "-q"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "could not be written" in done.stderr


def test_interrupt_ends_the_program():
    run = subprocess.Popen([KVASIR, "run", SMOLLM, "Tell a very long story.", "--ignore-eos"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout.read(1)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=30) == -signal.SIGINT
