"""Progress is shown only when a person has to wait."""

import time

import pytest

from kvviz import progress, timing


@pytest.mark.parametrize(
    ("environment", "asked", "wanted"),
    [("1", None, True), ("0", None, False), ("0", True, True), ("1", False, False)],
)
def test_it_is_shown_unless_the_environment_or_the_caller_says_no(
    environment, asked, wanted, monkeypatch
):
    monkeypatch.setenv("KVVIZ_PROGRESS", environment)
    assert progress.is_wanted(asked) is wanted
    assert progress.bar(range(3), shown=asked).disable is not wanted


def test_quick_work_shows_nothing(capsys, monkeypatch):
    monkeypatch.setenv("KVVIZ_PROGRESS", "1")
    assert list(progress.bar(range(3))) == [0, 1, 2]
    timing.compare({"a": int, "b": int}, rounds=2)
    assert capsys.readouterr() == ("", "")


def test_slow_work_is_counted_on_stderr_and_leaves_nothing_behind(capsys, monkeypatch):
    now = time.time()
    monkeypatch.setattr("tqdm.std.time", lambda: now)
    looks = {"desc": "timed", "mininterval": 0, "maxinterval": 1e9}
    for _ in progress.bar(range(3), shown=True, **looks):
        now += 4
    out, err = capsys.readouterr()
    assert "timed" in err and "2/3" in err and out == ""
    assert err.endswith("\r") and not err.rstrip("\r").endswith("3/3")
