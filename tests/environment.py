"""What every test finds around it, whoever starts the tests and from where: signals, umask, locale, variables, home, models.

`settle` gives this process, and so all that it starts, default signal dispositions (nohup and background jobs ignore some), a umask of
022, the C.UTF-8 locale and none of the caller's variables but KEPT. HOME and TMPDIR are in a folder of this run alone, which goes with
it; KVASIR_MODELS is a folder there with links to the models of the user, so that nothing a test does reaches the user's own files.
"""
import atexit
import os
import pathlib
import shutil
import signal
import sys
import tempfile

MODELS = ("smollm2-135m-instruct", "gemma-3-270m")  # what `make models` fetches

# Where programs are; how packages come; how the build and the tests were asked to be.
KEPT = {"PATH", "LD_LIBRARY_PATH", "CC", "WERROR", "TEST_FULL", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
        "KVASIR_TRACES", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
        "http_proxy", "https_proxy", "no_proxy"}
KEPT_PREFIXES = ("PIP_", "CCACHE_")


def user_models():
    """The user's model directory, as the program finds it."""
    if os.environ.get("KVASIR_MODELS"):
        return pathlib.Path(os.environ["KVASIR_MODELS"]).absolute()
    data = os.environ.get("XDG_DATA_HOME", "")
    home = pathlib.Path(os.environ.get("HOME") or "/nonexistent")
    return (pathlib.Path(data) if data.startswith("/") else home / ".local/share") / "kvasir/models"


def listing(folder):
    """Every file in a folder with its size and time."""
    return {p.name: (p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.iterdir()} if folder.is_dir() else {}


def link_models(source, target):
    """Links to the models, and copies of what pull noted about them."""
    target.mkdir()
    for name in MODELS:
        if (source / f"{name}.gguf").exists():
            (target / f"{name}.gguf").symlink_to((source / f"{name}.gguf").resolve())
        if (source / f".{name}.stamp").exists():
            shutil.copyfile(source / f".{name}.stamp", target / f".{name}.stamp")


def settle_signals():
    """Defaults for all that is started from here. Who used nohup goes on after a hangup: this process answers SIGHUP with a handler that
    does nothing (programs that it starts don't inherit handlers), and leaves the terminal's session so that they don't get one."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    hangup_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if hangup_ignored:
        signal.signal(signal.SIGHUP, lambda *_: None)
        if os.getpgrp() != os.getpid():
            os.setsid()


def settle():
    """Once a run: a process that a settled one started is settled already. Returns the user's model directory."""
    if os.environ.get("KVASIR_TESTS_USER_MODELS"):
        return pathlib.Path(os.environ["KVASIR_TESTS_USER_MODELS"])
    settle_signals()
    os.umask(0o022)
    models = user_models()
    own = pathlib.Path(tempfile.mkdtemp(prefix="kvasir-tests-"))
    maker = os.getpid()
    atexit.register(lambda: os.getpid() == maker and shutil.rmtree(own, ignore_errors=True))
    for folder in ("home", "tmp"):
        (own / folder).mkdir()
    link_models(models, own / "models")
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    os.environ.clear()
    os.environ.update(kept, LC_ALL="C.UTF-8", TZ="UTC", TERM="dumb", SHELL="/bin/sh", HOME=str(own / "home"), TMPDIR=str(own / "tmp"),
                      KVASIR_MODELS=str(own / "models"), KVASIR_TESTS_USER_MODELS=str(models))
    # `kvasir pull` finds the pip that stands beside this Python.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    tempfile.tempdir = None  # ask TMPDIR anew
    return models
