"""Fixtures that several test modules share."""

import pytest


@pytest.fixture(scope="session")
def default_model():
    """The course's model and its tokenizer, loaded once."""
    from kvviz.models import load_model

    return load_model()
