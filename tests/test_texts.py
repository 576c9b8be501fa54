"""The texts that come with the course."""

import pytest

import kvviz as kv


def test_a_text_is_plain_and_has_no_line_broken_by_hand():
    text = kv.load_text("lighthouse")
    assert text.isascii() and text.endswith("\n")
    assert all(len(paragraph) > 80 for paragraph in text.strip().split("\n\n"))
    assert "\n" not in text.replace("\n\n", "").strip()


@pytest.mark.parametrize("name", ["nobody", "", None, "./lighthouse"])
def test_another_name_is_refused_with_what_there_is(name):
    with pytest.raises(ValueError, match="name of a text, lighthouse, got"):
        kv.load_text(name)
