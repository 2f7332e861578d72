"""`model.source` in its six forms."""

import pytest
from flatwake_service.manifest import Scheme, parse_source, source_label

FORMS = [
    ("hf://org/repo", (Scheme.HF, "org/repo", "main", "")),
    ("hf://org/repo@v1", (Scheme.HF, "org/repo", "v1", "")),
    ("hf://org/repo@v1/a/m.gguf", (Scheme.HF, "org/repo", "v1", "a/m.gguf")),
    ("https://h/a/m.gguf?x=1", (Scheme.HTTPS, "https://h/a/m.gguf?x=1", "", "m.gguf")),
    ("file:///a/m.gguf", (Scheme.FILE, "", "", "/a/m.gguf")),
    ("pvc://claim/a/m", (Scheme.PVC, "claim", "", "a/m")),
    ("pypi://pkg==1.2/pkg/m.gguf", (Scheme.PYPI, "pkg", "1.2", "pkg/m.gguf")),
]


@pytest.mark.parametrize(("text", "parts"), FORMS)
def test_forms(text: str, parts: tuple[Scheme, str, str, str]) -> None:
    source = parse_source(text)
    assert (source.scheme, source.place, source.revision, source.path) == parts


@pytest.mark.parametrize(
    "text",
    ["", "m.gguf", "hf://org", "hf:org/repo", "file://m", "pvc://claim", "pypi://pkg/m",
     "https://h", "pvc://claim/../etc", "file:///a/../../etc/passwd"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_source(text)


def test_the_model_lies_where_fetch_puts_it() -> None:
    assert parse_source("file:///a/m.gguf").location("/c") == "/a/m.gguf"
    assert parse_source("pvc://claim/a/m").location("/c") == "/c/a/m"
    file, other = parse_source("hf://o/r@v1/a/m.gguf"), parse_source("hf://o/r@v2/a/m.gguf")
    assert file.location("/c") == f"/c/{file.key}/m.gguf"
    assert file.location("/c") != other.location("/c")
    assert parse_source("hf://o/r").location("/c") == f"/c/{parse_source('hf://o/r').key}"


def test_a_label_tells_no_secret() -> None:
    secret = "https://user:pw@host/a/m.gguf?X-Amz-Signature=abc#d"
    assert source_label(secret) == "https://host/a/m.gguf"
    for text in ("hf://org/repo@v1", "file:///a/m.gguf", "pypi://pkg==1.2/pkg/m.gguf"):
        assert source_label(text) == text
