"""What all commands have in common: help, man page, completion, bad command lines, a standard output that fails."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KVASIR = str(ROOT / "kvasir")
ENV = {**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"}


def kvasir(*words, **more):
    return subprocess.run([KVASIR, *words], capture_output=True, text=True, timeout=60, **more)


def printed(*words, **more):
    done = kvasir(*words, **more)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


COMMANDS = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", printed("help"), re.MULTILINE)


def spellings(text, start):
    """Every spelling in the lines that list options: --name, --no-name, -n."""
    found = []
    for letter, off, name in re.findall(rf"^{start}(?:-(\w), )?--(\[no-\])?([a-z0-9-]+)", text, re.MULTILINE):
        found += [f"--{name}"] + ([f"--no-{name}"] if off else []) + ([f"-{letter}"] if letter else [])
    return found


def options_of(command):
    return spellings(printed("help", *command.split()).split("\nOptions:\n")[1], "(?:  |      )")


OPTIONS = {command: options_of(command) for command in COMMANDS}
SCRIPTS = {shell: printed("completion", shell) for shell in ("bash", "zsh", "fish")}
MAN = printed("help", "--man")


def test_the_commands_are_there():
    assert {"pull", "ls", "rm", "inspect", "run", "chat", "serve", "size", "sim cache", "tokenize", "detokenize", "logits", "bench",
            "bench serve", "completion", "help", "version"} <= set(COMMANDS)
    assert "--threads" in OPTIONS["run"] and "--json" in OPTIONS["ls"]


def test_help_in_all_its_spellings():
    assert printed("--help") == printed("-h") == printed("help") == printed("help", "--") != ""
    for command in COMMANDS:
        words = command.split()
        text = printed("help", *words)
        assert text == printed(*words, "--help") == printed(*words, "-h", "--", "whatever")
        assert text.startswith(f"usage: kvasir {command} [OPTIONS]") and "--help" in OPTIONS[command]
        assert re.search(rf"^  .*kvasir {command}\b", text, re.MULTILINE), "no example"
        assert max(map(len, text.splitlines())) <= 100


def test_alone_it_explains_itself():
    done = kvasir()
    assert done.returncode == 2 and done.stdout == "" and done.stderr == printed("help")


def test_version():
    version = json.loads(printed("version", "--json"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", version["version"]) and version["compiler"] and version["libcurl"]
    assert printed("version").startswith(f"kvasir {version['version']} (")
    assert printed("--version") == printed("-V") == printed("version")


@pytest.mark.parametrize("words, message, hint", [
    (["tokenise"], "kvasir: there is no command 'tokenise'; did you mean 'tokenize'?", "kvasir --help"),
    (["frobnicate"], "kvasir: there is no command 'frobnicate'", "kvasir --help"),
    (["--verison"], "kvasir: there is no option '--verison'; did you mean '--version'?", "kvasir --help"),
    (["help", "ls", "x"], "kvasir help: 'x' is one argument too many", "kvasir help --help"),
    (["bench", "serve"], "kvasir bench serve: MODEL is missing: kvasir bench serve MODEL", "kvasir bench serve --help"),
    (["bench", "x", "serve"], "kvasir bench: 'serve' is one argument too many", "kvasir bench --help"),
    (["help", "lss"], "kvasir help: there is no command 'lss'; did you mean 'ls'?", "kvasir help --help"),
    (["ls", "--jsn"], "kvasir ls: there is no option '--jsn'; did you mean '--json'?", "kvasir ls --help"),
    (["ls", "x"], "kvasir ls: 'x' is one argument too many", "kvasir ls --help"),
    (["ls", "--json=1"], "kvasir ls: --json takes no value, but was given '1'", "kvasir ls --help"),
    (["rm"], "kvasir rm: NAME is missing: kvasir rm NAME...", "kvasir rm --help"),
    (["completion", "tcsh"], "kvasir completion: there is no completion for 'tcsh': bash, zsh and fish have one",
     "kvasir completion --help"),
    (["ls", "\x1b[31m"], "kvasir ls: '?[31m' is one argument too many", "kvasir ls --help"),
])
def test_usage_errors(words, message, hint):
    done = kvasir(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"{message}\ntry '{hint}'\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_unknown_option(command):
    done = kvasir(*command.split(), "--no-such-option")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"kvasir {command}: there is no option")


def test_standard_output_full():
    with open("/dev/full", "w") as full:
        for words in (["help"], ["--help"], ["version"], ["help", "--man"]):
            done = subprocess.run([KVASIR, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 1
            assert done.stderr == "kvasir: standard output could not be written: No space left on device\n"


def test_standard_output_closed():
    done = subprocess.run(["sh", "-c", f"'{KVASIR}' version >&-"], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "Bad file descriptor" in done.stderr


@pytest.mark.parametrize("ignored", [False, True])
def test_reader_that_left(ignored):
    """Quiet, also when whoever started us ignores SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([KVASIR, "help", "--man"], stdout=writer, stderr=subprocess.PIPE, timeout=60,
                          restore_signals=not ignored)
    os.close(writer)
    assert done.returncode != 0 and done.stderr == b""


def test_man_page_names_everything():
    plain = MAN.replace("\\-", "-")
    for command, options in OPTIONS.items():
        section = plain.split(f'.SS "kvasir {command}"\n')[1].split("\n.S")[0]
        assert spellings(section, r"\.B ") == options


def test_man_page_renders():
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-rLL=100n"], input=MAN, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    assert "EXIT STATUS" in re.sub(".\b", "", re.sub(r"\x1b\[\d*m", "", done.stdout))


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_parses(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


def test_completion_names_everything():
    for command, options in OPTIONS.items():
        in_bash = re.search(rf"^    '{command}:-'\*\) _kvasir_words(.*) ;;$", SCRIPTS["bash"], re.MULTILINE).group(1)
        assert sorted(in_bash.split()) == sorted(options)
        in_zsh = re.search(rf"^    '{command}'\)\n(.*?) ;;$", SCRIPTS["zsh"], re.MULTILINE | re.DOTALL).group(1)
        in_fish = [line for line in SCRIPTS["fish"].splitlines() if f"_is {command}'" in line]
        for option in options:
            assert re.search(rf"'\*?{option}[=+]?\[", in_zsh), option
            spelled = f" -s {option[1]} " if len(option) == 2 else f" -l {option[2:]} "
            assert any(spelled in line for line in in_fish), option
        first, *second = command.split()
        assert f"__fish_use_subcommand -a {first} " in SCRIPTS["fish"]
        assert re.search(rf"^            '{first}:", SCRIPTS["zsh"], re.MULTILINE)
        if second:
            assert f"-n '__kvasir_is {first}' -a {second[0]} " in SCRIPTS["fish"]
            assert f"    {first}) compadd {second[0]} ;;" in SCRIPTS["zsh"]


def bash_offers(*words, **env):
    program = SCRIPTS["bash"] + '\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvasir\nfor w in "${COMPREPLY[@]}"; do echo "$w"; done'
    done = subprocess.run(["bash", "--norc", "-c", program, "bash", *words], capture_output=True, text=True, timeout=60,
                          env={**ENV, **env})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def models(tmp_path):
    """A model directory; one of the names would do harm if it were evaluated."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("alpha", "al pine", "al$(touch evaluated)", "beta"):
        (folder / f"{name}.gguf").write_bytes(b"GGUF")
    return str(folder)


def test_bash_completes(models, tmp_path):
    assert bash_offers("kvasir", "to") == ["tokenize"]
    assert bash_offers("kvasir", "") == list(dict.fromkeys(c.split()[0] for c in COMMANDS)) + ["--help", "--version"]
    assert bash_offers("kvasir", "ls", "--j") == ["--json"]
    assert bash_offers("kvasir", "completion", "") == ["bash", "zsh", "fish"]
    assert bash_offers("kvasir", "help", "to") == ["tokenize"]
    assert bash_offers("kvasir", "pull", "gem") == ["gemma-3-270m"]
    assert bash_offers("kvasir", "rm", "al", KVASIR_MODELS=models) == ["al pine", "al$(touch evaluated)", "alpha"]
    assert not pathlib.Path("evaluated").exists()
    assert bash_offers("kvasir", "pull", "--name", "x") == []
    path = f"{tmp_path}/mod"
    assert f"{tmp_path}/models" in bash_offers("kvasir", "inspect", path)
    assert "beta" in bash_offers("kvasir", "run", "b", KVASIR_MODELS=models)


def test_bash_completes_second_words(models):
    assert bash_offers("kvasir", "bench", "", KVASIR_MODELS=models)[0] == "serve"
    assert "beta" in bash_offers("kvasir", "bench", "", KVASIR_MODELS=models)
    assert bash_offers("kvasir", "help", "bench", "s") == ["serve"]
    assert bash_offers("kvasir", "bench", "serve", "--wo") == ["--work"]
    assert bash_offers("kvasir", "bench", "serve", "--work", "a") == ["agents", "all"]
    assert bash_offers("kvasir", "bench", "--wo") == []
    assert "beta" in bash_offers("kvasir", "bench", "serve", "b", KVASIR_MODELS=models)


def test_bash_completes_choices():
    assert bash_offers("kvasir", "run", "--overflow", "") == ["stop", "window"]
    assert bash_offers("kvasir", "run", "--overflow", "w") == ["window"]
    assert bash_offers("kvasir", "run", "--overflow", "=", "s") == ["stop"]
    assert bash_offers("kvasir", "run", "--overflow", "=") == ["stop", "window"]


def test_fish_completes(models):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")

    def offers(line):
        program = f"complete -C {line!r}"
        done = subprocess.run(["fish", "--no-config", "-c", SCRIPTS["fish"] + "\n" + program], capture_output=True, text=True,
                              timeout=60, env={**ENV, "KVASIR_MODELS": models})
        assert done.returncode == 0, done.stderr
        return [offer.split("\t")[0] for offer in done.stdout.splitlines()]
    assert offers("kvasir to") == ["tokenize"]
    assert offers("kvasir ls --j") == ["--json"]
    assert sorted(offers("kvasir completion ")) == ["bash", "fish", "zsh"]
    assert "beta" in offers("kvasir rm ")
    assert {"serve", "beta"} <= set(offers("kvasir bench "))
    assert offers("kvasir bench serve --wo") == ["--work"] and offers("kvasir bench --wo") == []
    assert offers("kvasir bench serve --work a") == ["agents", "all"]


def test_model_names_and_paths(models, tmp_path):
    """A missing model: what to pull, or what was perhaps meant."""
    env = {**os.environ, "KVASIR_MODELS": models}
    done = kvasir("inspect", "smollm2-135m-instruct", env=env)
    assert done.returncode == 1
    assert "smollm2-135m-instruct is not here yet; 'kvasir pull smollm2-135m-instruct' brings it" in done.stderr
    assert "did you mean 'alpha'" in kvasir("inspect", "alpah", env=env).stderr
    assert "there is no model or file 'qwerty'; 'kvasir ls' lists the models" in kvasir("inspect", "qwerty", env=env).stderr
    assert "no such file" in kvasir("inspect", "./alpha", env=env).stderr
    (tmp_path / "here.gguf").write_bytes(b"not a model")
    for name in ("alpha", "alpha.gguf", f"{models}/alpha.gguf"):
        assert "alpha.gguf" in kvasir("inspect", name, env=env).stderr  # found, and refused for its four bytes
    assert "here.gguf" in kvasir("inspect", "here.gguf", env=env, cwd=tmp_path).stderr
