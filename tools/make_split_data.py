#!/usr/bin/env python3
"""Writes tests/data/splits.jsonl: how Hugging Face's tokenizers (pip install tokenizers==0.23.3) cuts tricky texts into words.

One line per pre-tokenizer and text: {"pre", "text", "words"}. The patterns are spelled as the models' tokenizer.json files spell
them, with \\s, so that the C patterns are checked against another spelling and another regular expression engine.
"""
import json
import pathlib
import random

from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Sequence, Split

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"""
      r"|\s+(?!\S)|\s+")


def cut(*patterns):
    return [Split(Regex(p), "isolated") for p in patterns]


RULES = {
    "default": cut(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": cut(GPT2),
    "llama-bpe": cut(LLAMA3),
    "qwen2": cut(LLAMA3.replace("{1,3}", "")),
    "smollm": [Digits(individual_digits=True), *cut(GPT2)],
    "deepseek-llm": cut(r"[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}+"),
    "deepseek-v3": cut(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", V3),
}

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", " \n", "\n ", "\t", " \n \n x", "a", " a", "a ", "  a", "a  b", "a   b   ", "x \n\n  y\n",
    "Hello,  world! It's 12345678 o'clock.", "I'LL we'Re DON'T 'tis 's's", "'ſ x'ſ", "1234567890 12 1", "3.14159 1,000 0x1F v2.0.1",
    "½ ² Ⅳ ٣٤٥٦ ४५६ ①②③④", "naïve café résumé", "cafe\u0301 e\u0301\u0301x \u0301", "Straße ẞ ﬁ", "日本語のテキスト、漢字とかな。カタカナ",
    "中文字符 混合 English文本123", "한국어 텍스트 12개", "العربية نص", "हिन्दी पाठ", "ไทยไม่มี", "Ελληνικά Кириллица", "👍🏽 👩\u200d👩\u200d👧 🏳️\u200d🌈!",
    "a\xa0b\u2003c\u3000d\u1680e\u2028f\u0085g\u180eh\u200bi", "\u180e\u180e  \u180ex", "\u3000\u3000x  \u3000", "\xa0\xa0\n\xa0x",
    "\x01\x02 \x1c\x1d\x0b\x0cx", "\x00a\x00", "tab\tnew\nline\r\n\r\nend\r", "def f(x):\n    return x ** 2  # square\n\n\n    pass\n",
    "if (a<=b&&c!=d) {\n\t\tx+=1;\n}", "https://example.org/a_b?c=d&e=%20#f", "$5+$6=^~|`", "“quotes” ‘x’ —dash… «y»", "!!!\n\n???  \n", "...\r\n\r\nabc",
    "#include <x.h>\n//c", "@user #tag &amp; [link](url)", "a.b,c;d:e/f", "\\n\\t {\"k\": [1, 2.5]}", "  leading", "trailing  \t ", "x" * 40, " " * 40 + "y",
    "µΩK ℂ ǅ ʔ ªº ᴀ", "ＡＢＣ ａｂｃ １２３ ！？：", "𝒳𝟙 𐐀𐒰 𞤀", "12三四56", "\ufeffx\u200dy\u200c", "€£¥₹ ©®™ ±×÷ ✓→∑",
]
ALPHABET = list("aZ 's1٣½é中あ가.!$_-\n\r\t\xa0\u3000\u0301👍\x01<'") + ["  ", "\r\n", "'ll", "123"]


def main():
    random.seed(7)
    texts = TEXTS + ["".join(random.choices(ALPHABET, k=random.randint(2, 16))) for _ in range(120)]
    path = pathlib.Path(__file__).resolve().parents[1] / "tests/data/splits.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for pre, steps in RULES.items():
            rule = Sequence(steps)
            for text in texts:
                words = [w for w, _ in rule.pre_tokenize_str(text)]
                assert "".join(words) == text
                out.write(json.dumps({"pre": pre, "text": text, "words": words}, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
