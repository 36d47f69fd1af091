"""Label files that refer to other files: none of them is opened."""

import builtins
import io
import socket

import pytest

from tailbatch.data import read_arff
from tailbatch.errors import DataError

ARFF = "@relation r\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n0,1\n"
HOSTILE = {
    "external DTD": '<!DOCTYPE l SYSTEM "http://127.0.0.1:9/x.dtd"><l><label name="a"/></l>',
    "public DTD": '<!DOCTYPE l PUBLIC "x" "file:///etc/passwd"><l><label name="a"/></l>',
    "parameter entity": '<!DOCTYPE l [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><l/>',
    "unparsed entity": '<!DOCTYPE l [<!NOTATION n SYSTEM "x"><!ENTITY u SYSTEM "x" NDATA n>]><l/>',
    "quadratic": f'<!DOCTYPE l [<!ENTITY a "{"a" * 10_000}">]><l><label name="{"&a;" * 10_000}"/></l>',
    "schema": '<l xmlns:i="http://www.w3.org/2001/XInclude"><i:include href="/etc/passwd"/></l>',
    "stylesheet": '<?xml-stylesheet href="file:///etc/passwd"?><l><label name="no"/></l>',
    "unknown encoding": '<?xml version="1.0" encoding="rot13"?><l><label name="a"/></l>',
    "wide encoding": '<?xml version="1.0" encoding="gb18030"?><l><label name="a"/></l>',
}


@pytest.mark.parametrize("xml", HOSTILE.values(), ids=HOSTILE)
def test_only_the_file_itself_is_opened(xml, tmp_path, monkeypatch):
    arff, labels = tmp_path / "data.arff", tmp_path / "labels.xml"
    arff.write_text(ARFF)
    labels.write_text(xml)
    opened = []

    def noting(path, *args, **kwargs):
        opened.append(str(path))
        return real(path, *args, **kwargs)

    def refuse(*args, **kwargs):
        raise AssertionError("a connection")

    real = io.open
    monkeypatch.setattr(builtins, "open", noting)
    monkeypatch.setattr(io, "open", noting)
    monkeypatch.setattr(socket, "socket", refuse)
    try:
        outcome = " ".join(read_arff(arff, labels=labels).label_names)
    except DataError as error:
        outcome = str(error)
    assert outcome == "a" or (str(labels) in outcome and outcome.isprintable())
    assert set(opened) <= {str(arff), str(labels)}
    assert opened
