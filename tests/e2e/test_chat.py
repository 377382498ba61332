"""kvasir chat: on a pipe, and on a terminal with its keys."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from program import GEMMA, KVASIR, SMOLLM, fails, kvasir, works

GREEDY = ("--temperature", "0", "-n", "40")


def chat(*lines, model=SMOLLM, options=GREEDY):
    return works("chat", model, *options, text="".join(line + "\n" for line in lines))


def test_turns_follow_each_other_and_reuse_the_cache():
    done = chat("My name is Ada.", "What is my name?")
    assert "Ada" in done.stdout
    closing = re.findall(r"prompt (\d+) tokens(?: \((\d+) from the cache\))?", done.stderr)
    assert len(closing) == 2 and closing[0][1] == ""
    assert int(closing[1][1]) >= int(closing[0][0]) and int(closing[1][0]) > int(closing[1][1])


def test_reset_forgets():
    done = chat("Hello", "/reset", "Hello")
    first, second = re.findall(r"prompt (\d+) tokens", done.stderr)
    assert first == second
    answers = done.stdout.split("\n")
    assert len(answers) >= 2


def test_save_and_load(tmp_path):
    saved = tmp_path / "talk.json"
    chat("My dog is called Rex.", f"/save {saved}")
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant"] and messages[0]["content"] == "My dog is called Rex."
    again = chat(f"/load {saved}", "What is my dog called?")
    straight = chat("My dog is called Rex.", "What is my dog called?")
    assert len(again.stdout) > 10 and straight.stdout.endswith(again.stdout)
    (tmp_path / "bad").write_text("[{]")
    assert "line 1" in failing(f"/load {tmp_path}/bad", "never read")
    assert "no such file" in failing(f"/load {tmp_path}/none", "never read")
    (tmp_path / "role").write_text(r'[{"role": "user\u0000", "content": ""}]')
    assert "role" in failing(f"/load {tmp_path}/role")
    assert "can't be written" in failing(f"/save {tmp_path}/no/where", "never read")


def failing(*lines):
    """The error of a script that ends at its last line but those never read."""
    done = kvasir("chat", SMOLLM, *GREEDY, text="".join(line + "\n" for line in lines))
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_input_that_can_not_be_read_or_has_odd_bytes(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run([KVASIR, "chat", SMOLLM], stdin=folder, capture_output=True, text=True)
    os.close(folder)
    assert done.returncode == 1 and "standard input can't be read" in done.stderr
    saved = tmp_path / "talk.json"
    chat("a\0b", f"/save {saved}", options=("-n", "1"))
    assert json.loads(saved.read_text())[0]["content"] == "a\0b"


def test_system_stats_and_help():
    done = chat("/system You are a cat.", "Hi", "/stats", "/help", "/quit", "never read")
    assert "blocks cached" in done.stderr and "/reset" in done.stderr
    assert "3 messages" in done.stderr and done.stderr.count("prompt ") == 2


def test_the_first_failure_ends_a_script(tmp_path):
    for line, says in (("/nonsense", "there is no command '/nonsense'"), ("/rest", "did you mean '/reset'?"), ("/save", "/save needs a file"),
                       ("/load ", "/load needs a file"), ("/quit now", "/quit takes nothing"), ("/", "there is no command '/'")):
        assert says in failing(line, "never read"), line
    (tmp_path / "calls").write_text('[{"role": "assistant", "content": "", "tool_calls": []}]')
    assert "more than a role" in failing(f"/load {tmp_path}/calls", "never read")


def test_lines_that_end_with_crlf(tmp_path):
    saved = tmp_path / "talk.json"
    unix = chat("/system Be brief.", "Hello", f"/save {saved}", "/quit")
    messages = json.loads(saved.read_text())
    saved.unlink()
    windows = chat("/system Be brief.\r", "Hello\r", "\r", f"/save {saved}\r", "/quit\r", "never read\r")
    assert windows.stdout == unix.stdout and json.loads(saved.read_text()) == messages and [p.name for p in tmp_path.iterdir()] == ["talk.json"]
    assert [m["content"] for m in messages[:2]] == ["Be brief.", "Hello"]


def test_a_base_model_says_that_it_has_no_template():
    done = chat("The sky is", model=GEMMA, options=("--temperature", "0", "-n", "4"))
    assert "no chat template" in done.stderr and done.stdout.strip()


def test_a_turn_that_does_not_fit_is_told():
    fails_with = fails
    done = subprocess.run([KVASIR, "chat", SMOLLM, "--ctx", "48", *GREEDY], input="word " * 60 + "\n", capture_output=True, text=True)
    assert done.returncode == 1 and "context holds 48" in done.stderr
    fails_with(1, "chat", "no-such-model", says="no-such-model")


class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, folder, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", XDG_STATE_HOME=str(folder / "state"))
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
            os.execv(KVASIR, [KVASIR, "chat", SMOLLM, *options])
        self.seen = ""

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 1)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = self.seen[found.end():]

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """The exit status after an end of file on an empty line, typed again as often as it takes: what is typed while the
        terminal changes its mode can be lost, or left in the line."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.type("\x15\x04")
            for _ in range(10):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.1)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("still running after an end of file: " + self.seen)


def test_on_a_terminal(tmp_path):
    t = Terminal(tmp_path, "--temperature", "0", "--ignore-eos", "-n", "3000")
    t.wait_for("/help lists commands")
    t.wait_for("> ")
    t.type("Tell a very long story.\r")
    t.wait_for(r"\w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+")
    os.kill(t.pid, signal.SIGINT)  # stops the answer, not the program
    t.wait_for(r"\| cancelled")
    t.wait_for("> ")
    t.type("/stats\r")
    t.wait_for("blocks cached")
    t.wait_for("> ")
    assert t.end() == 0
    kept = tmp_path / "state/kvasir"
    assert kept.stat().st_mode & 0o777 == 0o700
    typed = (kept / "chat-history").read_text().replace("\\040", " ")
    assert "Tell a very long story.\n/stats\n" in typed
