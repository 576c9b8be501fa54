"""The text of single tokens, as exactly as it can be given."""

import re
import unicodedata
from weakref import WeakKeyDictionary

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # how SentencePiece writes a byte, without a table
_TOKENIZERS = WeakKeyDictionary()
# Marks and letters that show nothing, though their categories are those of things seen.
_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159}
_BLANK |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\0": r"\0", "\ufffd": r"\ufffd"}


def remember(model, tokenizer):
    """Note which tokenizer belongs to a loaded model; forgotten together with the model."""
    _TOKENIZERS[model] = tokenizer


def find_tokenizer(model):
    """The tokenizer that was loaded with `model`, or None."""
    return _TOKENIZERS.get(model)


def piece(tokenizer, token):
    """A token's text; the bytes, as <0xF0>, where it is only part of a character."""
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    if "\ufffd" not in text:
        return text
    written = tokenizer.convert_ids_to_tokens(token)
    table = _byte_letters()
    if (
        written is None
        or _BYTE.fullmatch(written)
        or any(letter not in table for letter in written)
    ):
        return written or str(token)
    return "".join(f"<0x{table[letter]:02X}>" for letter in written)


def _byte_letters():
    """The letters byte-level tokenizers write bytes with, as GPT-2's published code maps them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


def escaped(character: str) -> str:
    """A character written out, as Python writes it in a string."""
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def visible(token: str) -> str:
    """`token` with everything that cannot be seen written out; the same on every machine."""
    seen = []
    for character in token:
        unseen = unicodedata.category(character) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
        unseen |= ord(character) in _BLANK
        odd_space = character != " " and unicodedata.category(character) == "Zs"
        unseen |= odd_space or character in _SHORT
        seen.append(escaped(character) if unseen else character)
    if seen and unicodedata.category(seen[0][0])[0] == "M":
        seen.insert(0, "◌")  # a mark needs something to sit on
    return "".join(seen)


def quoted(token: str, quote: str = "'") -> str:
    """`token` in quotes, for a sentence; text that runs right to left cannot turn the sentence."""
    text = f"{quote}{visible(token)}{quote}"
    turns = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)
    return f"\u2068{text}\u2069" if turns else text
