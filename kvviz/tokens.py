"""The text of single tokens, as exactly as it can be shown."""

import re
import unicodedata
from itertools import groupby
from weakref import WeakKeyDictionary

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # how SentencePiece writes a byte, without a table
_BYTES, _HEX = re.compile("(<0x[0-9A-F]{2}>)+"), re.compile("<0x([0-9A-F]{2})>")
_MARKED = re.compile(r" \d/\d$")
_TOKENIZERS = WeakKeyDictionary()
# Marks and letters that show nothing, although their categories are those of visible characters.
_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159}
_BLANK |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # Unicode categories
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\0": r"\0", "\ufffd": r"\ufffd"}


def remember(model, tokenizer):
    """Remember which tokenizer belongs to a model, for as long as the model exists."""
    _TOKENIZERS[model] = tokenizer


def find_tokenizer(model):
    """The tokenizer that was remembered for `model`, or None."""
    return _TOKENIZERS.get(model)


def piece(tokenizer, token: int) -> str:
    """A token's text, or its bytes, such as <0xF0>, if it's only part of a character."""
    text = tokenizer.decode([token], clean_up_tokenization_spaces=False)
    if "\ufffd" not in text:
        return text
    written = tokenizer.convert_ids_to_tokens(token)
    if written is None:
        return str(token)
    table = _list_byte_letters()
    if _BYTE.fullmatch(written) or any(letter not in table for letter in written):
        return written or str(token)
    return "".join(f"<0x{table[letter]:02X}>" for letter in written)


def is_bytes(label: str) -> bool:
    """Whether a token's text is written as bytes."""
    return _BYTES.fullmatch(label) is not None


def join_pieces(labels: list[str]) -> list[str]:
    """`labels` of tokens in a row, with each character that several of them make up.

    Pieces are marked by their number; the bytes of a character that isn't complete stay bytes.

    >>> join_pieces(["a", "<0xE8><0xAF>", "<0xAD>", "<0xE8>"])
    ['a', '语 1/2', '语 2/2', '<0xE8>']
    """
    joined = list(labels)
    for together, numbers in groupby(range(len(labels)), lambda number: is_bytes(labels[number])):
        if together and len(numbers := [*numbers]) > 1:
            joined[numbers[0] : numbers[-1] + 1] = _join([labels[number] for number in numbers])
    return joined


def find_mark(label: str) -> str:
    """The number that `join_pieces` gave a piece, such as " 2/3"; empty if there is none.

    >>> find_mark("语 2/3")
    ' 2/3'
    """
    found = _MARKED.search(label)
    return found[0] if found else ""


def _join(pieces: list[str]) -> list[str]:
    """The text of each of these pieces, all of them bytes."""
    given = [bytes.fromhex("".join(_HEX.findall(piece))) for piece in pieces]
    owners = [number for number, piece in enumerate(given) for _ in piece]
    shown: list[list[str]] = [[] for _ in pieces]
    for text, start, end in _split_characters(b"".join(given)):
        makers = sorted({*owners[start:end]})
        for number, maker in enumerate(makers, 1):
            after = "+" if shown[maker] and find_mark(shown[maker][-1]) else ""
            mark = f" {number}/{len(makers)}" if len(makers) > 1 else ""
            shown[maker].append(f"{after}{text}{mark}")
    return ["".join(parts) for parts in shown]


def _split_characters(given: bytes):
    """Each character with its first byte's place and its end; a byte of none is written out."""
    start = 0
    while start < len(given):
        for length in range(1, 5):
            try:
                text = given[start : start + length].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            text, length = f"<0x{given[start]:02X}>", 1
        yield text, start, start + length
        start += length


def _list_byte_letters():
    """The letters that byte-level tokenizers write bytes with, as in GPT-2's published code."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


def escaped(character: str) -> str:
    r"""A character written out, as Python writes it in a string.

    >>> print(escaped("\t"), escaped("\u200b"))
    \t \u200b
    """
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(token: str) -> str:
    r"""`token` with everything invisible written out; the same on every machine.

    >>> print(visible(" line\n"))
     line\n
    """
    shown = [escaped(each) if _is_invisible(each) else each for each in token]
    if shown and unicodedata.category(shown[0][0])[0] == "M":
        shown.insert(0, "◌")  # a combining mark needs something to sit on
    return "".join(shown)


def _is_invisible(character: str) -> bool:
    category = unicodedata.category(character)
    is_odd_space = category == "Zs" and character != " "
    is_blank = ord(character) in _BLANK or character in _SHORT
    return category in _INVISIBLE or is_odd_space or is_blank


def quoted(token: str, quote: str = "'") -> str:
    """`token` in quotes, for a sentence; right-to-left text is isolated from the rest.

    >>> quoted(" at")
    "' at'"
    """
    text = f"{quote}{visible(token)}{quote}"
    turns = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)
    return f"\u2068{text}\u2069" if turns else text
