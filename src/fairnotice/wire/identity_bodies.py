"""The bodies of errors about managed identity, in the shape that OAuth gives them, as on Azure."""

import json


def body(error: str, why: str) -> bytes:
    """An error of the token of a managed identity, which has a shape of its own on Azure."""
    written = {"error": error, "error_description": why}
    return json.dumps(written, separators=(",", ":")).encode("ascii")


METADATA_HEADER = body("invalid_request", "Required metadata header not specified")
API_VERSION = body("bad_request_102", "api-version is missing, or is none since 2018-02-01")
RESOURCE_MISSING = body("invalid_request", "Required query variable 'resource' is missing")
TWICE = body("invalid_request", "A query variable is given twice")
NOT_FOUND = body("invalid_request", "Identity not found")
SEVERAL = body(
    "invalid_request",
    "Multiple user assigned identities exist, please specify the clientId / resourceId of the "
    "identity in the token request",
)
NO_RESOURCE = body("invalid_resource", "There is no such resource")
AWAY = body("temporarily_unavailable", "No identity can be looked up now; try again")
