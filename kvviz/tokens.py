"""The text of single tokens, as exactly as it can be given."""

import re
from weakref import WeakKeyDictionary

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # how SentencePiece writes a byte, without a table
_TOKENIZERS = WeakKeyDictionary()


def remember(model, tokenizer):
    """Note which tokenizer belongs to a loaded model; forgotten together with the model."""
    _TOKENIZERS[model] = tokenizer


def of(model):
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
