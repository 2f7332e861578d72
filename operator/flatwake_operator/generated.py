"""Files that are made from the models, and the check that they are up to date."""

import sys
from pathlib import Path

import yaml

from flatwake_operator import crd, reference

ROOT = Path(__file__).parents[2]
CHART_CRD = ROOT / "charts/flatwake/templates/crd-inferenceserver.yaml"
REFERENCE = ROOT / "docs/manifest.md"

CHART_HEAD = """\
{{- /* Made from flatwake_service.manifest by `make generated`; edit the models. */}}
{{- if .Values.crds.install }}
"""
CHART_ANNOTATIONS = """\
  annotations:
    {{- if .Values.crds.keep }}
    helm.sh/resource-policy: keep
    {{- end }}
    flatwake.dev/chart: {{ .Chart.Version | quote }}
"""
CHART_FOOT = "{{- end }}\n"


def crd_text() -> str:
    """The CRD as `flatwake crd` prints it."""
    return yaml.safe_dump(crd.definition(), sort_keys=False, width=100, allow_unicode=True)


def chart_text() -> str:
    """The CRD as a template of the chart."""
    text = crd_text()
    assert "{{" not in text, "the CRD's text would be taken for a template"
    name = f"metadata:\n  name: {crd.NAME}\n"
    head, tail = text.split(name, 1)
    return CHART_HEAD + head + name + CHART_ANNOTATIONS + tail + CHART_FOOT


FILES = {CHART_CRD: chart_text, REFERENCE: reference.page}


def stale() -> list[Path]:
    """The files that differ from what the models say now."""
    return [path for path, text in FILES.items() if not path.exists() or path.read_text() != text()]


def main(arguments: list[str]) -> int:
    """Writes the files, or with --check names those that are stale and returns 1."""
    if arguments == ["--check"]:
        for path in stale():
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run `make generated`\n")
        return 1 if stale() else 0
    for path, text in FILES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
