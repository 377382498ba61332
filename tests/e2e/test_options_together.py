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
