import sys

import pytest

from tailbatch.errors import MissingExtraError, require, require_installed


def test_a_missing_package_says_what_to_install():
    with pytest.raises(
        MissingExtraError,
        match=r'^nowhere is not installed; run: pip install "tailbatch\[faiss\]"$',
    ):
        require("nowhere.deeper", extra="faiss")


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import something_it_needs\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ModuleNotFoundError, match="something_it_needs") as caught:
        require("broken_package", extra="faiss")
    assert not isinstance(caught.value, MissingExtraError)


def test_looking_for_packages_imports_none(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise RuntimeError\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    require_installed("broken_package", extra="cli")
    with pytest.raises(MissingExtraError, match=r"^nowhere is not installed; .*tailbatch\[cli\]"):
        require_installed("broken_package", "nowhere", extra="cli")
