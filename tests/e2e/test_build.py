"""The build's own promises: help, set-up, what install puts where, which symbols the libraries show."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"^VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.M)[1]
SHARED = f"libkvasir.so.{VERSION}"
INSTALLED = {
    "bin/kvasir", "include/kvasir.h", "lib/libkvasir.a", "lib/libkvasir.so", "lib/libkvasir.so.0.1", f"lib/{SHARED}",
    "lib/pkgconfig/kvasir.pc", "share/man/man1/kvasir.1", "share/bash-completion/completions/kvasir",
    "share/zsh/site-functions/_kvasir", "share/fish/vendor_completions.d/kvasir.fish",
}


def run(*command, check=True, **variables):
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def public_names():
    """The functions that kvasir.h declares KVASIR_API."""
    header = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*(\\\n[^\n]*)*", "", (ROOT / "include/kvasir.h").read_text(), flags=re.S | re.M)
    return {re.search(r"(\w+)\s*\(", declaration)[1] for declaration in re.findall(r"\bKVASIR_API\b([^;]*);", header)}


def defined(*nm):
    return {line.split()[-1].split("@")[0] for line in run("nm", *nm).stdout.splitlines() if re.search(r" [A-Zuvw] ", line)}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    place = tmp_path_factory.mktemp("install")
    run("make", "install", f"DESTDIR={place}", "PREFIX=/opt/kv")
    return place / "opt/kv"


def test_help_lists_every_target_for_people():
    text = run("make", "help").stdout
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)[1].replace("\\", "").split()
    internal = {"objects", "unit-programs", "small-programs", "thread-programs", "fuzz-programs", "arm-programs", "bench-programs",
                "models", "FORCE"}
    listed = set(re.findall(r"^  (\S+)  +\S", text, re.M))
    assert listed == set(phony) - internal


def test_each_header_numbers_its_invariants_with_letters_of_its_own():
    owners = {}
    for header in sorted([*(ROOT / "src").rglob("*.h"), *(ROOT / "tests").rglob("*.h")]):
        opening = header.read_text().partition("*/")[0]
        for letters in set(re.findall(r"^ \* ([A-Z]{1,2})1 ", opening, re.M)):
            owners.setdefault(letters, []).append(str(header.relative_to(ROOT)))
    assert len(owners) > 20 and {k: v for k, v in owners.items() if len(v) > 1} == {}


def test_every_unit_test_is_in_one_list():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lists = [re.search(rf"^{name}_TESTS := (.*)", makefile, re.M)[1].split() for name in ("MODEL", "THREAD", "PLAIN")]
    there = [p.stem.removeprefix("test_") for p in (ROOT / "tests/unit").glob("test_*.c")]
    assert sorted(sum(lists, [])) == sorted(there), "a new unit test goes into a list of the Makefile, which says its sanitizers"


def arrows():
    """The folders of src that each folder may include, as ARCHITECTURE.md states it: a -> b -> c lets a include c too."""
    line = re.search(r"Arrows point one way: ([^(.]*)", (ROOT / "docs/ARCHITECTURE.md").read_text())[1]
    below = {}
    for chain in line.split(";"):
        levels = [re.findall(r"\w+", level) for level in chain.split("->")]
        for upper, lower in zip(levels, levels[1:]):
            for folder in upper:
                below.setdefault(folder, set()).update(lower)
    def reach(folder):
        return set().union(*({b} | reach(b) for b in below.get(folder, ())))
    return {folder.name: reach(folder.name) for folder in (ROOT / "src").iterdir()}


def test_arrows_between_folders_point_one_way():
    allowed = arrows()
    assert allowed["cli"] == set(allowed) - {"cli"} and allowed["base"] == set()
    assert "cache" not in allowed["model"] and "model" not in allowed["cache"] and allowed["fetch"] == {"base"}
    allowed["engine"].add("kvasir.h")
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        folder = path.relative_to(ROOT / "src").parts[0]
        for included in re.findall(r'^ *# *include "([^"]+)"', path.read_text(), re.M):
            if included.split("/")[0] not in allowed[folder] | {folder}:
                wrong.append(f"{path.relative_to(ROOT)} includes {included}")
    assert wrong == []


def test_an_unknown_variant_is_refused():
    done = run("make", "VARIANT=fast", check=False)
    assert done.returncode != 0 and "choose release, asan, tsan, fuzz or arm" in done.stderr


def test_setup_has_nothing_to_do_after_itself():
    done = run("scripts/setup", "test")
    assert done.stdout == done.stderr == ""


def tools_without(folder, *missing):
    """A folder to serve as PATH: the tools that scripts/setup uses, without those named."""
    for tool in {"bash", "env", "dirname", "id", "gcc", "make", "mkdir", "touch", "pkg-config"} - set(missing):
        (folder / tool).symlink_to(shutil.which(tool))
    return str(folder)


def test_setup_without_apt_names_what_is_missing(tmp_path):
    done = run("scripts/setup", "build", check=False, PATH=tools_without(tmp_path), PKG_CONFIG_LIBDIR=str(tmp_path))
    assert done.returncode == 1
    assert "missing, by their Debian names: libpcre2-dev libssl-dev libxxhash-dev libjansson-dev libcurl4-openssl-dev libedit-dev libmicrohttpd-dev zlib1g-dev\n" in done.stderr


def test_setup_without_pkg_config_names_it_first(tmp_path):
    done = run("scripts/setup", "--check", "build", check=False, PATH=tools_without(tmp_path, "pkg-config"))
    assert done.returncode == 1
    assert re.search(r"missing, by their Debian names: pkg-config libpcre2-dev ", done.stderr)


def test_setup_refuses_an_unknown_set():
    assert run("scripts/setup", "everything", check=False).returncode == 2


def test_make_names_every_missing_package_before_it_compiles(tmp_path):
    copy = tmp_path / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("build", ".venv", ".git", "kvasir"))
    (tmp_path / "none").mkdir()
    done = subprocess.run(["make"], cwd=copy, env={**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path / "none")}, capture_output=True, text=True)
    assert done.returncode != 0
    assert "libpcre2-dev libssl-dev libxxhash-dev libjansson-dev libcurl4-openssl-dev libedit-dev libmicrohttpd-dev" in done.stderr
    assert " CC " not in done.stdout


def test_demo_answers_the_question():
    done = run("make", "demo", QUESTION="What is the capital of France?")
    command, _, answer = done.stdout.partition('"What is the capital of France?"\n')
    assert "./kvasir run smollm2-135m-instruct" in command and "Paris" in answer


def test_install_places_every_file(prefix):
    files = {str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()}
    assert files == INSTALLED
    assert all((prefix / name).stat().st_size > 0 for name in files)
    assert os.readlink(prefix / "lib/libkvasir.so.0.1") == os.readlink(prefix / "lib/libkvasir.so") == SHARED
    assert os.access(prefix / "bin/kvasir", os.X_OK)
    assert VERSION in run(str(prefix / "bin/kvasir"), "version").stdout
    assert (prefix / "share/man/man1/kvasir.1").read_text().startswith(".TH")


def test_uninstall_removes_every_file(tmp_path):
    run("make", "install", f"DESTDIR={tmp_path}")
    (tmp_path / "usr/local/lib/other.txt").write_text("stays")
    run("make", "uninstall", f"DESTDIR={tmp_path}")
    assert [p.name for p in tmp_path.rglob("*") if not p.is_dir()] == ["other.txt"]


@pytest.mark.parametrize("flags", [[], ["--static"]])
def test_a_program_builds_against_what_was_installed(prefix, tmp_path, flags):
    """Through pkg-config, with the shared library and with the archive; all public functions can be linked."""
    environment = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(prefix.parents[1])}
    said = run("pkg-config", "--cflags", "--libs", *flags, "kvasir", **environment).stdout.split()
    libs = [str(prefix / "lib/libkvasir.a") if flags and x == "-lkvasir" else x for x in said]
    table = ", ".join(f"(void (*)(void)){name}" for name in sorted(public_names()))
    (tmp_path / "use.c").write_text(f"#include <kvasir.h>\nvoid (*all[])(void) = {{{table}}};\nint main(void) {{ return !all[0]; }}\n")
    run("gcc", "-std=c11", "-Wall", "-Werror", str(tmp_path / "use.c"), "-o", str(tmp_path / "use"), *libs)
    run(str(tmp_path / "use"), LD_LIBRARY_PATH="" if flags else str(prefix / "lib"))


def test_header_stands_alone_in_c_and_cpp(tmp_path):
    for compiler, standard in (("gcc", "-std=c99"), ("clang", "-std=c11")):
        run(compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c", "include/kvasir.h")
    run("clang", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "include/kvasir.h")


def test_only_the_public_functions_are_visible(prefix):
    names = public_names()
    assert names and all(name.startswith("kvasir_") for name in names)
    assert defined("--dynamic", "--defined-only", str(prefix / "lib" / SHARED)) == names
    assert defined("--extern-only", "--defined-only", str(prefix / "lib/libkvasir.a")) == names


def test_the_shared_library_has_a_versioned_name_and_few_needs(prefix):
    text = run("readelf", "-d", str(prefix / "lib" / SHARED)).stdout
    assert re.search(r"SONAME.*\[libkvasir\.so\.0\.1\]", text)
    needed = {name.split(".so")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", text)}
    assert needed <= {"libpcre2-8", "libcrypto", "libxxhash", "libm", "libc"}, needed
