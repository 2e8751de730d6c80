"""The files of examples/serving: they can be read, and fit the command, the docs and each other."""

from __future__ import annotations

import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from reclick.cli import app
from reclick.service import ServiceLimits
from reclick.service.protection import OPEN_PATHS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "serving"
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def parse_command(words: list[str]) -> dict[str, Any]:
    """The arguments of a `reclick serve` line, as the command reads them."""
    assert [Path(words[0]).name, words[1]] == ["reclick", "serve"]
    arguments: dict[str, Any] = COMMANDS["serve"].make_context("serve", words[2:]).params
    return arguments


def read_dockerfile() -> dict[str, list[str]]:
    """The arguments of each instruction of the Dockerfile."""
    text = re.sub(r"\\\n\s*", " ", (EXAMPLES / "Dockerfile").read_text(encoding="utf-8"))
    instructions: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, arguments = line.partition(" ")
            instructions.setdefault(name, []).append(arguments)
    return instructions


def read_manifests() -> dict[str, dict[str, Any]]:
    """The objects of the Kubernetes example by kind."""
    text = (EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_the_container_serves_the_folder_that_is_mounted() -> None:
    instructions = read_dockerfile()
    arguments = parse_command(json.loads(instructions["ENTRYPOINT"][0]))
    assert (arguments["models"], arguments["port"]) == (["/model"], 8080)
    assert instructions["EXPOSE"] == ["8080"]
    for line in instructions["COPY"]:
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_unit_gives_the_service_its_token_and_time_to_stop() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((EXAMPLES / "reclick.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    arguments = parse_command(shlex.split(service["ExecStart"]))
    credential, _, source = service["LoadCredential"].partition(":")
    assert str(arguments["token_file"]) == f"${{CREDENTIALS_DIRECTORY}}/{credential}"
    assert float(service["TimeoutStopSec"]) > ServiceLimits().seconds + 1
    docs = (ROOT / "docs/how-to/serving.md").read_text(encoding="utf-8")
    program = service["ExecStart"].partition("/bin/")[0]
    for path in (source, program, *arguments["models"], "examples/serving/reclick.service"):
        assert path in docs, path


def test_the_kubernetes_objects_fit_each_other() -> None:
    manifests = read_manifests()
    pod = manifests["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert manifests["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    ports = {each["containerPort"] for each in container["ports"]}
    assert {each["targetPort"] for each in manifests["Service"]["spec"]["ports"]} == ports
    claims = {
        each["persistentVolumeClaim"]["claimName"]
        for each in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    }
    assert claims == {manifests["PersistentVolumeClaim"]["metadata"]["name"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["spec"]["volumes"]}
    assert mounts["model"] == "/model"
    assert pod["spec"]["terminationGracePeriodSeconds"] > ServiceLimits().seconds + 1
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert not container["image"].endswith(":latest")
    docs = (ROOT / "docs/how-to/serving.md").read_text(encoding="utf-8")
    assert f"docker build -f examples/serving/Dockerfile -t {container['image']} ." in docs


@pytest.mark.parametrize("name", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_probes_ask_what_needs_no_token(name: str) -> None:
    (container,) = read_manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    probe = container[name]["httpGet"]
    assert probe["path"] in OPEN_PATHS
    assert (probe["path"] == "/readyz") is (name == "readinessProbe")  # else it would be restarted
    assert probe["port"] in {each["containerPort"] for each in container["ports"]}
