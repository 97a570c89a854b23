"""The DaemonSet has the shape that Kubernetes asks for, and its parts name each other rightly.

There is no cluster here: what is held is the schema, and what a schema cannot say.
"""

import copy
import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from tests.agent.pages import JOBS, blocks
from tests.house import ROOT

MANIFEST = ROOT / "deploy" / "kubernetes" / "agent-daemonset.yaml"
SCHEMA = json.loads((Path(__file__).parent / "kubernetes.schema.json").read_text("utf-8"))


def documents():
    """What is in the manifest, by its kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text("utf-8"))}


def test_the_manifest_fits_its_schema():
    """Every document of it, strictly: no key that Kubernetes would not know."""
    validator = jsonschema_rs.validator_for(SCHEMA)
    found = documents()
    assert set(found) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"}
    for document in found.values():
        validator.validate(document)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pod: pod.update(hostnetwork=True),
        lambda pod: pod["containers"][0].update(image="untagged"),
        lambda pod: pod["containers"][0]["resources"]["limits"].update(memory=192),
        lambda pod: pod["volumes"][1].pop("hostPath"),
        lambda pod: pod["tolerations"].append({"operator": "Any"}),
        lambda pod: pod.pop("containers"),
    ],
)
def test_a_manifest_that_does_not_fit_is_found(spoil):
    """A key in small letters, an image without a version, a number for a quantity."""
    document = copy.deepcopy(documents()["DaemonSet"])
    spoil(document["spec"]["template"]["spec"])
    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(document)


def test_its_parts_name_each_other():
    """Labels, account, role, volumes; and the state is where the page's file has it."""
    found = documents()
    account, role = found["ServiceAccount"]["metadata"], found["ClusterRole"]["metadata"]
    binding, daemons = found["ClusterRoleBinding"], found["DaemonSet"]
    template = daemons["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}

    assert daemons["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert pod["serviceAccountName"] == account["name"]
    assert daemons["metadata"]["namespace"] == account["namespace"]
    assert binding["roleRef"]["name"] == role["name"]
    assert [(one["name"], one["namespace"]) for one in binding["subjects"]] == [
        (account["name"], account["namespace"])
    ]
    assert set(mounts.values()) == set(volumes)
    assert 'state = "/var/lib/fairnotice"' in blocks(JOBS / "kubernetes.md")[0]
    assert volumes[mounts["/var/lib/fairnotice"]]["hostPath"]["path"] == "/var/lib/fairnotice"
    assert [one["name"] for one in container["env"]] == ["NODE_NAME"]
    assert container["command"][-1] == "/etc/fairnotice/agent.toml"


def test_what_the_page_does_is_allowed():
    """Each verb that `kubectl cordon`, `annotate` and `drain` ask the API for."""
    rules = documents()["ClusterRole"]["rules"]
    allowed = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == {
        ("nodes", "get"),
        ("nodes", "patch"),
        ("pods", "get"),
        ("pods", "list"),
        ("pods/eviction", "create"),
        ("daemonsets", "get"),
    }


def test_both_say_that_they_were_not_run():
    """Nobody is led to believe that a cluster has seen them."""
    assert "not run in a cluster" in MANIFEST.read_text("utf-8").replace("\n# ", " ")
    assert "**Not run** in a cluster" in (JOBS / "kubernetes.md").read_text("utf-8")
