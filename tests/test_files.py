import os

import pytest

from tailbatch.files import replacing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "record.json"
    target.write_text("old")

    def write_half():
        with replacing(target) as temporary:
            temporary.write_text("ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "record.json"
    target.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), replacing(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_new_file_has_the_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    with replacing(tmp_path / "replaced") as temporary:
        temporary.write_text("")
    assert (tmp_path / "replaced").stat().st_mode == plain.stat().st_mode
