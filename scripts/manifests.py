"""Writes the kustomize base out of the chart, or says what differs. Called by scripts/manifests.

Owns how a rendered release is cut into files: one for each template, and kustomization.yaml, which lists them.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "packaging/helm/evenkeel"
BASE = ROOT / "packaging/kubernetes/base"
CRD = ROOT / "packaging/kubernetes/crd.yaml"
HEAD = "# Made by scripts/manifests out of packaging/helm/evenkeel: change that.\n"
SOURCE = "# Source: evenkeel/templates/"
KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
"""


def rendered(library):
    """The documents of each template's file."""
    values = (ROOT / "packaging/kubernetes/values.json").read_text()
    helm = [sys.executable, ROOT / "scripts/helm.py", library, CHART, "evenkeel", json.dumps({"install": json.loads(values)})]
    (release,) = json.loads(subprocess.run(helm, check=True, stdout=subprocess.PIPE).stdout)
    if "error" in release:
        sys.exit(f"error: Helm refuses the chart: {release['error']}")
    files = {}
    for document in release["manifest"].split("---\n" + SOURCE)[1:]:
        name, _, text = document.partition("\n")
        lines = (line.rstrip() for line in text.strip("\n").splitlines())
        files.setdefault(name, []).append("\n".join(lines) + "\n")
    return files


def main():
    library, check = sys.argv[1], "--check" in sys.argv[2:]
    wanted = {name: HEAD + "---\n".join(documents) for name, documents in rendered(library).items()}
    copies = {}
    if CRD.exists():
        wanted["crd.yaml"] = CRD.read_text()
        copies[CHART / "crds/crd.yaml"] = CRD.read_text()
    listed = "".join(f"  - {name}\n" for name in sorted(wanted))
    wanted["kustomization.yaml"] = HEAD + KUSTOMIZATION + listed
    copies |= {BASE / name: text for name, text in wanted.items()}
    stale = [path for path in BASE.glob("*") if path not in copies]
    differing = [path for path, text in copies.items() if not path.exists() or path.read_text() != text]
    for path in stale + differing:
        print(f"{'differs from' if check else 'made of'} the chart: {path.relative_to(ROOT)}")
    if check:
        sys.exit("error: run scripts/manifests" if stale + differing else 0)
    BASE.mkdir(exist_ok=True)
    for path in stale:
        path.unlink()
    for path in differing:
        path.parent.mkdir(exist_ok=True)
        path.write_text(copies[path])


main()
