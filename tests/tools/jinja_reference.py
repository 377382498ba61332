"""Python's jinja2, set up as Hugging Face transformers does it for chat templates: what our interpreter must agree with.

    python tests/tools/jinja_reference.py --update     writes the expected outputs into tests/data/templates/*.json
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "templates"
NOW = 1718454896  # 2024-06-15 12:34:56 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what an assistant wrote; the text passes through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads  # not Hugging Face's; templates that were written for llama.cpp use it
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = strftime_now
    return env


def render(template, context):
    """The text, or None where jinja2 fails."""
    try:
        return environment().from_string(template).render(**context)
    except Refused:
        raise
    except Exception:
        return None


def load(name):
    return json.loads((DATA / name).read_text())


def update():
    for path in sorted(DATA.glob("*.json")):
        cases = json.loads(path.read_text())
        for case in cases:
            if "code" in case:  # beyond the subset: no jinja2 output to expect
                continue
            template = (DATA / case["file"]).read_text() if "file" in case else case["template"]
            try:
                case["expected"] = render(template, case.get("context", {}))
            except Refused as refused:
                case["expected"], case["refused"] = None, str(refused)
        path.write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    update()
