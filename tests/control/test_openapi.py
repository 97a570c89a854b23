"""The OpenAPI document says what there is, and Schemathesis finds nothing that it does not say."""

import json
import os
import re
import subprocess
import sys

from fairnotice.control.openapi import openapi
from fairnotice.control.routes import ROUTES
from fairnotice.stores.webhooks import Webhook
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import EventSchema
from tests.control.calling import serving

DOCUMENT = json.loads(openapi(ROUTES))
# A schema cannot say all of the law: what fits it may still be refused, with 422 and the field.
UNCHECKED = "positive_data_acceptance"
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"
# The program's own limit, so that a hang says where.
LIMIT_SECONDS = 600
# So many for each address; `make test` is not the place for a long search.
EXAMPLES = os.environ.get("API_EXAMPLES", "3")


def operations():
    """Every address and method that the document describes."""
    return {(method.upper(), path) for path, one in DOCUMENT["paths"].items() for method in one}


def references(found):
    """Every name that is referred to."""
    return set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(found)))


# ---- What it says ----


def test_every_route_is_described_and_nothing_else():
    """The document is made from the table of routes."""
    streams = {("GET", "/v1/feed"), ("GET", "/v1/endpoints/{name}/feed")}
    described = {(route.method, route.path) for route in ROUTES} | streams
    assert operations() == described


def test_every_operation_has_a_name_of_its_own():
    """Programs that make clients from the document call their functions so."""
    found = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(found) == len(set(found))
    assert all(re.fullmatch(r"[a-z-]+", name) for name in found)


def test_every_shape_that_is_referred_to_is_there():
    """And every shape that is there is referred to."""
    shapes = DOCUMENT["components"]["schemas"]
    assert references(DOCUMENT) <= set(shapes)
    assert set(shapes) - references(DOCUMENT) <= {
        "AuditPaging",
        "EventPaging",
        "Foresee",
        "LetterPaging",
        "Paging",
        "Version",
    }


def test_every_problem_is_described_as_one():
    """In problem+json, with the same shape."""
    for path in DOCUMENT["paths"].values():
        for one in path.values():
            for status, answer in one["responses"].items():
                kinds = set(answer["content"])
                if int(status) >= 400:
                    assert kinds == {"application/problem+json"}
                assert answer["description"]


def test_what_takes_a_key_says_so():
    """Every POST that changes something, and no other; what answers with a secret is not kept.

    What an endpoint says may be said twice.
    """
    repeatable = (
        "/v1/fleet/difference",
        "/v1/tokens",
        "/v1/webhooks",
        "/v1/webhooks/{name}/test",
    )
    for path, methods in DOCUMENT["paths"].items():
        for method, one in methods.items():
            names = [parameter["name"] for parameter in one["parameters"]]
            said_twice = path in repeatable or path.startswith("/v1/endpoints/")
            changes = method == "post" and not said_twice
            assert ("Idempotency-Key" in names) == changes, path


def test_bounds_that_are_enforced_are_said():
    """Those of the feed's revision, and of a key."""
    (after,) = DOCUMENT["paths"]["/v1/feed"]["get"]["parameters"]
    assert (after["schema"]["minimum"], after["schema"]["maximum"]) == (0, 2**63 - 1)
    restart = DOCUMENT["paths"]["/v1/vms:restart"]["post"]["parameters"]
    keys = [one for one in restart if one["in"] == "header"]
    assert [one["schema"]["maxLength"] for one in keys] == [200]


def test_what_was_only_asked_is_not_said_to_be_durable():
    """A dry run is answered 200 with a forecast, a rollout that begins 202."""
    answers = DOCUMENT["paths"]["/v1/rollouts"]["post"]["responses"]
    assert references(answers["200"]) == {"Forecast"}
    assert references(answers["202"]) == {"Accepted"}


def test_every_description_stands_by_itself():
    """Nobody reads the one before it."""
    shapes = DOCUMENT["components"]["schemas"].items()
    leaning = [name for name, one in shapes if one.get("description", "").startswith("The same f")]
    assert leaning == []
    summary = DOCUMENT["paths"]["/v1/operations"]["get"]["summary"]
    assert summary == "Every operation of the last day, and all that are not over."


def test_the_addresses_that_people_rely_on_are_there():
    """Those of INTERFACES.md."""
    found = {path for _, path in operations()}
    for kind in ("vms", "nodes", "scopes", "scale-sets", "events", "operations", "rollouts"):
        assert {f"/v1/{kind}", f"/v1/{kind}/{{name}}"} <= found
    for kind, verbs in (
        ("vms", "restart redeploy evict delete stop start deallocate document"),
        (
            "nodes",
            "maintain migrate repair predict-failure fail cordon uncordon evacuate",
        ),
        ("events", "approve cancel postpone release history"),
        ("rollouts", "pause resume cancel"),
        ("scale-sets", "scale-in"),
    ):
        assert {f"/v1/{kind}/{{name}}/{verb}" for verb in verbs.split()} <= found
    on_several = "restart redeploy evict delete stop start deallocate"
    assert {f"/v1/vms:{verb}" for verb in on_several.split()} <= found
    assert ("POST", "/v1/operations/{name}/cancel") in operations()
    for pair in (("PUT", "/v1/fleet"), ("POST", "/v1/rollouts"), ("GET", "/v1/feed")):
        assert pair in operations()
    for kind in ("scale-sets", "scopes"):
        assert ("PATCH", f"/v1/{kind}/{{name}}") in operations()


# ---- Whether it is true ----


def explored(served, folder, document, *more):
    """Run Schemathesis against a service, with all that it checks but one."""
    (folder / "openapi.json").write_text(json.dumps(document))
    command = [
        *(sys.executable, "-c", PROGRAM, "run", "openapi.json"),
        *("--url", f"http://{served.run.control}"),
        *("--generation-deterministic", "--exclude-checks", UNCHECKED),
        # They never end, and have tests of their own.
        *("--exclude-path", "/v1/feed", "--exclude-path", "/v1/endpoints/{name}/feed"),
        *("--warnings", "off", "--no-color", *more),
    ]
    done = subprocess.run(  # noqa: S603, our own command
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases, done.stdout
    assert cases[1] == cases[2]
    return int(cases[1])


def test_schemathesis_finds_nothing_among_names_that_nobody_has(tmp_path):
    """No 5xx, no status and no shape that the document does not name."""
    with serving(clock=ManualClock()) as served:
        assert json.loads(served.get("/v1/openapi.json").body) == DOCUMENT
        assert explored(served, tmp_path, DOCUMENT, "--phases", "coverage") > 1_000


def known_names(served):
    """Names that somebody has, of each kind; some events are announced for it."""
    asked = [served.post(f"/v1/vms/{vm}/restart").json for vm in ("web-0", "web-0", "db")]
    rollout = served.post("/v1/rollouts", {"nodes": ["node-3", "node-4"]}).json["id"]
    hook = Webhook(
        id="1",
        name="ops",
        # Nobody listens there.
        url="http://127.0.0.1:1/",
        schema=EventSchema.EVENTGRID,
        created_at=ManualClock().wall(),
        created_by="olga",
    )
    assert served.run.conductor._store.add_webhook(hook, 0)
    return {
        "webhooks": ["ops"],
        "vms": ["web-0", "db", "spot_0", "batch_0", "FrontEnd_IN_0"],
        "nodes": ["node-0", "node-1", "node-5"],
        "endpoints": ["node-0", "node-1"],
        "scopes": ["availability-set:web", "vm:db"],
        "scale-sets": ["batch", "spot"],
        "events": [one["events"][0]["id"] for one in asked],
        "operations": [one["operations"][0] for one in asked],
        "rollouts": [rollout],
        "tokens": [served.post("/v1/tokens", {"name": "a", "role": "reader"}).json["token"]["id"]],
        "faults": [served.post("/v1/faults", {"fault": "slow", "vm": "db"}).json["id"]],
    }


def test_schemathesis_finds_nothing_among_names_that_are_there(tmp_path):
    """The same where commands reach the law, and most of them change the fleet."""
    document = json.loads(json.dumps(DOCUMENT))
    with serving(clock=ManualClock()) as served:
        known = known_names(served)
        for path, one in document["paths"].items():
            for operation in one.values():
                for parameter in operation["parameters"]:
                    if parameter["in"] == "path":
                        parameter["schema"] = {"enum": known[path.split("/")[2]]}
                if path.startswith("/v1/vms:"):
                    # Few of what is tried here fits: it is done in earnest.
                    asked = [one for one in operation["parameters"] if one["name"] != "foresee"]
                    operation["parameters"] = asked
        for shape, named in (("StartRollout", "nodes"), ("OnVms", "vms"), ("PlannedOnVms", "vms")):
            properties = document["components"]["schemas"][shape]["properties"]
            properties[named]["items"] = {"enum": known[named]}
        before = served.run.conductor.fleet.revision
        # A fleet that is put would take away all that the others are about.
        explored(
            *(served, tmp_path, document, "--exclude-operation-id", "put-fleet"),
            *("--phases", "coverage,fuzzing", "--max-examples", EXAMPLES),
        )
        # Half of them only ask what would happen.
        assert served.run.conductor.fleet.revision > before + 50
        requests = served.run.conductor.fleet.requests.values()
        assert any(len(request.operations) > 1 and not request.node for request in requests)
