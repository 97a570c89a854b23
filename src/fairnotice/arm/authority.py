"""Where Azure's tools sign in: an authority as ADFS has it, and as Microsoft Entra ID has it.

    issuer = Issuer(KeyFile(path), run.auth, clock, "https://localhost:8643")
    Starlette(routes=[*authority_routes(issuer), ...])     # before the gate: nobody has a token yet
    Bearers(issuer)                                        # bearers.py: for everything behind it

Tools are to be given https://HOST:PORT/adfs: for an authority of this name they neither ask
Microsoft whether it may be trusted, nor put a tenant into its address. What is refused here is
refused alike, whether the client is not there, its secret is wrong, or it was revoked or expired.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from fairnotice.arm.issuing import OPERATOR, Issuer
from fairnotice.arm.signing import TENANT
from fairnotice.control.audits import UNAUTHENTICATED
from fairnotice.control.auth import PATH_CHARACTERS_MAX
from fairnotice.errors import Unavailable
from fairnotice.stores.access import Audited, Token

BODY_BYTES_MAX = 16 * 1024
FIELDS_MAX = 50
# By what a tenant may be called in a path; there is one.
TENANTS = frozenset({"adfs", "common", "organizations", TENANT})
# Since which api-version the metadata of clouds is an object; before, a list of them.
ONE_CLOUD_SINCE = "2022-09-01"
LIST_OF_CLOUDS_SINCE = "2019-05-01"
NO_BROWSER = "Nobody signs in here by a browser: sign in by fairnotice az-login."
_FORM = "application/x-www-form-urlencoded"
_PRIVATE = {"Cache-Control": "no-store", "Pragma": "no-cache"}

Handler = Callable[[Request], Awaitable[Response]]


class Denied(Exception):
    """Carries the error of RFC 6749, 5.2, from where it was found to the answer."""

    def __init__(self, error: str, code: int, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.error = error
        self.code = code
        self.status = status


def authority_routes(issuer: Issuer) -> list[Route]:
    """Every address at which somebody without a token may ask."""
    well_known = ".well-known/openid-configuration"
    openid, keys, token = _openid(issuer), _jwks(issuer), _token(issuer)
    return [
        Route("/metadata/endpoints", _endpoints(issuer), methods=["GET"]),
        *(
            Route(path, _at_authority(openid), methods=["GET"])
            for path in (f"/{{tenant}}/{well_known}", f"/{{tenant}}/v2.0/{well_known}")
        ),
        *(
            Route(path, _at_authority(keys), methods=["GET"])
            for path in ("/{tenant}/discovery/keys", "/{tenant}/discovery/v2.0/keys")
        ),
        *(
            Route(path, _at_authority(token), methods=["POST"])
            for path in ("/{tenant}/oauth2/token", "/{tenant}/oauth2/v2.0/token")
        ),
        *(
            Route(f"/{{tenant}}/oauth2{v2}/{word}", _at_authority(handle), methods=[method])
            for v2 in ("", "/v2.0")
            for method, word, handle in (
                ("GET", "authorize", _authorize),
                ("POST", "devicecode", _device_code(issuer)),
            )
        ),
    ]


def _at_authority(handle: Handler) -> Handler:
    async def handled(request: Request) -> Response:
        try:
            if request.path_params["tenant"].lower() in TENANTS:
                return await handle(request)
            unknown = f"Tenant not found. There is one: {TENANT}."
            return _denied(Denied("invalid_request", 90002, unknown))
        except Denied as denied:
            return _denied(denied)
        except ClientDisconnect:
            # Whoever asked is gone before he had said all of it: nobody reads this.
            return Response(status_code=400)

    return handled


# ---- What is where ----


def _endpoints(issuer: Issuer) -> Handler:
    async def endpoints(request: Request) -> Response:
        version = request.query_params.get("api-version", ONE_CLOUD_SINCE)
        cloud = _cloud(issuer)
        listed = LIST_OF_CLOUDS_SINCE <= version < ONE_CLOUD_SINCE
        return _json([cloud] if listed else cloud)

    return endpoints


def _cloud(issuer: Issuer) -> dict[str, Any]:
    url = issuer.url
    return {
        "name": "fairnotice",
        "portal": url,
        "authentication": {
            "loginEndpoint": f"{url}/adfs",
            "audiences": [f"{url}/", url],
            "tenant": "adfs",
            "identityProvider": "ADFS",
        },
        "resourceManager": url,
        "graph": "",
        "graphAudience": "",
        "media": "",
        "batch": "",
        "gallery": "",
        "suffixes": {},
    }


def _openid(issuer: Issuer) -> Handler:
    async def openid(request: Request) -> Response:
        called = request.path_params["tenant"].lower()
        base = f"{issuer.url}/{called}"
        v2 = "" if called == "adfs" else "/v2.0"
        return _json(
            {
                "issuer": base + v2,
                "authorization_endpoint": f"{base}/oauth2{v2}/authorize",
                "token_endpoint": f"{base}/oauth2{v2}/token",
                "device_authorization_endpoint": f"{base}/oauth2{v2}/devicecode",
                "jwks_uri": f"{base}/discovery{v2}/keys",
                "grant_types_supported": ["client_credentials"],
                "response_types_supported": ["token"],
                "subject_types_supported": ["public"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    return openid


def _jwks(issuer: Issuer) -> Handler:
    async def jwks(_: Request) -> Response:
        return Response(issuer.file.keys.jwks, media_type="application/json")

    return jwks


# ---- Signing in ----


def _token(issuer: Issuer) -> Handler:
    async def token(request: Request) -> Response:
        whom: Token | str | None = None
        form: dict[str, str] = {}
        status = 400
        try:
            form = await _form(request)
            audience = _audience(issuer, form)
            whom = await _principal(issuer, form)
            issued = issuer.issue(whom, audience)
        except Denied as denied:
            status = denied.status
            raise
        except Unavailable as error:
            # Whether it counts, nobody can tell now: "no" might be a lie.
            status = 503
            raise Denied("temporarily_unavailable", 90033, str(error), 503) from error
        else:
            status = 200
        finally:
            _note(issuer, request, whom, form.get("client_secret", ""), status)
        return _json(
            {
                "token_type": "Bearer",
                "expires_in": issued.until - issued.at,
                "ext_expires_in": issued.until - issued.at,
                "expires_on": str(issued.until),
                "not_before": str(issued.at),
                "resource": audience,
                "access_token": issued.text,
            },
            _PRIVATE,
        )

    return token


async def _authorize(_: Request) -> Response:
    # What `az login` opens in a browser.
    raise Denied("unauthorized_client", 70003, NO_BROWSER)


def _device_code(issuer: Issuer) -> Handler:
    """Where tools begin that would have a person sign in elsewhere: there is nowhere.

    az ends in a traceback where it is refused here, and says why where the token is refused that
    this code is for: that is what is done with every grant but one.
    """

    async def device_code(_: Request) -> Response:
        return _json(
            {
                "device_code": "none",
                "user_code": "none",
                "verification_uri": issuer.url,
                "expires_in": 1,
                "interval": 1,
                "message": NO_BROWSER,
            },
            _PRIVATE,
        )

    return device_code


async def _form(request: Request) -> dict[str, str]:
    """The fields of the body, each given once."""
    if "origin" in request.headers:
        raise Denied("invalid_request", 9002326, "A web page may not sign in here.", 403)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise Denied("invalid_request", 900144, f"The body must be {_FORM}.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise Denied("invalid_request", 900144, "The body is too large.", 413)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise Denied("invalid_request", 900144, "The body is no form.") from error
    form = dict(pairs)
    if len(form) != len(pairs):
        raise Denied("invalid_request", 9000411, "A field of the form is given twice.")
    return form


def _audience(issuer: Issuer, form: dict[str, str]) -> str:
    """For what the token is to be good: `resource`, or `scope` with `/.default` behind it."""
    if form.get("grant_type") != "client_credentials":
        why = f"Give grant_type=client_credentials: no other is here. {NO_BROWSER}"
        raise Denied("unsupported_grant_type", 70003, why)
    asked = form.get("resource") or form.get("scope", "").removesuffix("/.default")
    if not asked:
        return f"{issuer.url}/"
    if not issuer.knows(asked):
        raise Denied(
            "invalid_resource", 500011, f"There is no resource {asked[:200]}. Ask for {issuer.url}/"
        )
    return asked


async def _principal(issuer: Issuer, form: dict[str, str]) -> Token | str:
    client, secret = form.get("client_id", ""), form.get("client_secret", "")
    for name, value in (("client_id", client), ("client_secret", secret)):
        if not value:
            raise Denied("invalid_request", 900144, f"The form must have {name}.")
    whom = await issuer.principal(client, secret)
    if whom is None:
        raise Denied(
            "invalid_client",
            7000215,
            "No principal of this client_id has this client_secret, or it was revoked, or expired. "
            "Give the name of a token of fairnotice as client_id and the token as client_secret.",
            401,
        )
    return whom


def _note(
    issuer: Issuer, request: Request, whom: Token | str | None, secret: str, status: int
) -> None:
    """Write down who signed in, or could not."""
    if not issuer.auth.required:
        return
    # A token that was stolen goes on to be tried after it is revoked.
    lapsed = issuer.auth.tokens.lapsed(secret) if status == UNAUTHENTICATED else None
    shown = whom if lapsed is None else lapsed.token
    token = shown if isinstance(shown, Token) else None
    audited = Audited(
        at=issuer.clock.wall(),
        token=None if token is None else token.id,
        name=OPERATOR if whom == OPERATOR else "" if token is None else token.name,
        source=request.client.host if request.client else "",
        method=request.method,
        path=request.url.path[:PATH_CHARACTERS_MAX],
        status=status,
        lapsed="" if lapsed is None else lapsed.why,
    )
    issuer.auth.audits.note(audited, refused=status != 200, changes=False)  # noqa: PLR2004


# ---- Answers ----


def _json(body: object, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(body), status, headers=headers, media_type="application/json"
    )


def _denied(denied: Denied) -> Response:
    body = {
        "error": denied.error,
        # Tools look for this code, and show the whole of it.
        "error_description": f"AADSTS{denied.code}: {denied}",
        "error_codes": [denied.code],
        "correlation_id": str(uuid4()),
    }
    return _json(body, _PRIVATE, denied.status)
