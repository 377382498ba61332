"""Options, files and variables that would be of no effect are refused, or told."""
import os
import subprocess

import pytest

from program import GEMMA, KVASIR, SMOLLM, fails, works


@pytest.mark.parametrize("words,says", [
    (("run", SMOLLM, "hi", "--raw", "--system", "x"), "--raw and --system can't go together"),
    (("run", SMOLLM, "hi", "--chat-template", "x", "--raw"), "--raw and --chat-template can't go together"),
    (("run", SMOLLM, "hi", "--dry-base", 2), "--dry-base is of no effect without --dry-multiplier"),
    (("chat", SMOLLM, "--xtc-threshold", 0.2), "--xtc-threshold is of no effect without --xtc-probability"),
    (("tokenize", SMOLLM, "hi", "--json", "--count"), "can't go together"),
    (("ls", "--names", "--json"), "can't go together"),
    (("size", "--list", "--batch", 3), "--list and --batch can't go together"),
    (("bench", SMOLLM, "--json", "--output", "csv"), "can't go together"),
    (("bench", "serve", SMOLLM, "--rate", 3, "--clients", 4), "can't go together"),
    (("bench", "serve", SMOLLM, "--contexts", 2, "--kv-memory", "64M"), "--contexts and --kv-memory can't go together"),
    (("bench", "serve", SMOLLM, "--prompt", 9), "--prompt is of no effect without --work fixed or --work all"),
    (("bench", "serve", SMOLLM, "--work", "mix", "-w", "tree", "--answer", 9), "--answer is of no effect without --work fixed or --work all"),
    (("run", SMOLLM, "hi", "--penalty-last-n", 9), "--penalty-last-n is of no effect without --repeat-penalty or --presence-penalty or --frequency-penalty"),
    (("serve", SMOLLM, "--alias", ""), "--alias takes NAME, which is empty here"),
    (("serve", SMOLLM, "--host="), "--host takes ADDRESS"),
])
def test_options_that_contradict(words, says):
    fails(2, *words, says=says)


def test_empty_templates_and_system_messages_without_a_place(tmp_path):
    for text in ("", " \n\n"):
        (tmp_path / "t.jinja").write_text(text)
        for words in (("run", SMOLLM, "hi"), ("chat", SMOLLM), ("serve", SMOLLM, "--port", 0)):
            fails(1, *words, "--chat-template", tmp_path / "t.jinja", says="t.jinja is empty")
    fails(1, "run", GEMMA, "hi", "--system", "x", says="no chat template")
    works("size", "--list")


def test_variables_that_nobody_reads_are_named():
    done = subprocess.run([KVASIR, "--version"], capture_output=True, text=True, env={**os.environ, "KVASIR_THREADS": "3"})
    assert done.returncode == 0 and done.stderr == "kvasir: the variable KVASIR_THREADS is of no effect; the one there is is KVASIR_MODELS\n"


def test_what_greedy_answers_make_of_sampling_options():
    words = ("run", SMOLLM, "Hi", "-n", 1, "--frequency-penalty", 0.5, "--penalty-last-n", 9, "--seed", 3, "--top-k", 5)
    says = ["kvasir: --top-k is of no effect: with --temperature 0 no token is drawn", "kvasir: --seed is of no effect: with --temperature 0 no token is drawn"]
    for more, told in (((), []), (("--temperature", 0), says), (("--temperature", 0, "--quiet"), [])):
        done = subprocess.run([KVASIR, *map(str, words), *map(str, more)], capture_output=True, text=True)
        assert done.returncode == 0 and [line for line in done.stderr.splitlines() if "no effect" in line] == told, done.stderr


def test_options_are_of_effect_beside_one_of_those_they_need():
    works("bench", "serve", SMOLLM, "--work", "mix", "-w", "fixed", "--prompt", 4, "--answer", 2, "-n", 1, "-b", "shared", "--scale", 0.1)
