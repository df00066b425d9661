"""Which characters cannot be seen, and which only look like ASCII ones.

It refuses to know how they are shown; `display.py` does. The tables are small on purpose: what
matters is text that an operator would read as an ASCII command, path or host name.
Pure.
Source: Unicode's confusables (UTS #39) and Default_Ignorable_Code_Point, reduced to that.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

# Cc controls, Cf format and bidi, Cs surrogates, Co private, Cn unassigned, Zl and Zp breaks.
_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Assigned, of visible categories, and yet blank or ignorable in most fonts: grapheme joiner,
# Hangul and Khmer fillers, variation selectors, Mongolian ones, blank Braille, a null note head.
_BLANK_RANGES: Final = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0x1D159, 0x1D159),
    (0xE0100, 0xE01EF),
)
# Strokes and rings that are drawn over the letter before them and change what it is.
_OVERLAY_RANGES: Final = ((0x0334, 0x0338), (0x20D0, 0x20FF))

_FIRST_BLANK: Final = "\u0334"

# Letters of other scripts that a reader takes for an ASCII letter or digit.
_TWINS: Final = frozenset(
    "АВЕЅІЈКМНОРСТУХԌԚԜҮӀ"
    "аеѕіјорсухԁԛԝһүӏҽѵԍ"
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳ"
    "αγεινκορστυχϲϱ"
    "ՍՏՕԼօսոցհգքզ"
    "ᎪᏴᏟᎠᎬᎻᎫᏦᏞᎷᏢᏒᏚᎢᏙᎳᏃ"
    "ⲟⲞⲢⲣⲤⲥⲦⲨⲬⲙⲔⲒ"
    "ꓐꓑꓓꓔꓖꓗꓘꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ"
    "ɑɡıɩȷʟɪʏʜɴʀʙᴀᴄᴅᴇᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢǀ"
)
# Scripts of which whole words are taken for Latin ones.
_TWIN_SCRIPTS: Final = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
# First words of the names of letters that people write next to Latin ones, and that look like none.
_AT_HOME: Final = frozenset(
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}
    | {"MICRO", "FEMININE", "MASCULINE"}
)
# Signs that look like ASCII signs with a meaning in commands: / \ : ; ! | - . ' % * < > ~
_SIGNS: Final = frozenset(
    "\u2044\u2215\u29f8\u2571\u2216\u29f5\u2236\ua789\u0589\u05c3\u02d0\u02f8\u01c3\u2223\u23d0"
    "\u2010\u2011\u2012\u2212\u02d7\u2043\u00ad\u2024\u0660\u06f0\u0701\u0702\u201a\u02bc"
    "\u2032\u066a\u2217\u204e\u2039\u203a\u02c2\u02c3\u223c\u2053\ua4fa\u2052"
)
_COMPATIBLE_WAYS: Final = ("<font>", "<wide>", "<narrow>", "<compat>")


def is_invisible(char: str) -> bool:
    """Whether the character must not reach a screen as it is.

    A space that is not U+0020 counts: it is one only to the eye.
    """
    category = unicodedata.category(char)
    if category in _INVISIBLE_CATEGORIES or (category == "Zs" and char != " "):
        return True
    return char >= _FIRST_BLANK and (_within(char, _BLANK_RANGES) or _within(char, _OVERLAY_RANGES))


@lru_cache(maxsize=4096)
def is_lookalike_sign(char: str) -> bool:
    """Whether the character is taken for one ASCII character wherever it stands.

    Full-width, mathematical and other styled forms, Roman numerals, the Kelvin sign, the Greek
    question mark; not superscripts, quotation marks and dashes of prose.
    """
    if char.isascii():
        return False
    return char in _SIGNS or _is_styled_ascii(char)


def suspicious_letters(word: str) -> frozenset[str]:
    """The letters and digits of `word` that only look like ASCII ones.

    Those of a foreign script next to Latin ones; a word that consists of twins alone, so that
    nothing gives it away; styled letters. A word that is plainly of its own script has none.
    """
    if word.isascii():
        return frozenset()
    styled = frozenset(char for char in word if is_lookalike_sign(char))
    strange = frozenset(char for char in word if _is_strange(char))
    foreign = frozenset(char for char in word if _script(char) in _TWIN_SCRIPTS)
    letters = [char for char in word if char.isalpha() and not char.isascii()]
    has_latin = any(_script(char) == "LATIN" for char in word)
    odd_latin = frozenset(char for char in letters if char in _TWINS and char not in foreign)
    if has_latin:
        return styled | strange | odd_latin
    if any(char.isascii() and char.isdigit() for char in word):
        styled |= frozenset(char for char in strange if char.isdigit())
    if foreign and all(char in _TWINS for char in letters):
        return styled | foreign | odd_latin
    return styled | odd_latin


def _is_styled_ascii(char: str) -> bool:
    parts = unicodedata.decomposition(char).split()
    if not parts:
        return False
    if parts[0].startswith("<"):
        if parts[0] not in _COMPATIBLE_WAYS:
            return False
        parts = parts[1:]
    return len(parts) == 1 and 0x20 < int(parts[0], 16) < 0x7F


@lru_cache(maxsize=4096)
def _is_strange(char: str) -> bool:
    """Whether it is a letter or digit that nobody writes next to Latin ones."""
    if char.isascii():
        return False
    return unicodedata.category(char) == "Nd" or (char.isalpha() and _script(char) not in _AT_HOME)


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    """The first word of the character's name, which for letters is its script."""
    return unicodedata.name(char, "").partition(" ")[0] if char.isalpha() else ""


def _within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)
