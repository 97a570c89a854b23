"""Managed identity: a VM asks its metadata endpoint for an access token, and needs no secret.

    identities = ManagedIdentities(issuer, service)
    status, body = await identities.answer(vm, resource, "")

Which VM asks is known by where it asks from, as for its document: it cannot ask for another's. It
has no identity, and so no rights, until an operator makes a token for it (`token create --vm`).
"""

import msgspec

from fairnotice.arm.issuing import Issuer, names
from fairnotice.control.publishing import describe
from fairnotice.control.service import Service
from fairnotice.stores.access import Audited, Token
from fairnotice.wire import identity_bodies, instance

PATH = "/metadata/identity/oauth2/token"
_FOUND, _REFUSED = 200, 400


class ManagedIdentities:
    """The identities of the VMs of one control plane."""

    def __init__(self, issuer: Issuer, service: Service) -> None:
        self._issuer = issuer
        self._service = service

    async def answer(self, vm: str, resource: str, identity: str) -> tuple[int, bytes]:
        """The answer to a VM: its access token for a resource, or why there is none."""
        own = await self._issuer.auth.tokens.of_vm(vm)
        if identity:
            own = [token for token in own if identity.lower() in map(str.lower, names(token))]
        resource_id = self._resource_id(vm)
        if not own or resource_id is None:
            return _REFUSED, identity_bodies.NOT_FOUND
        if len(own) > 1:
            return _REFUSED, identity_bodies.SEVERAL
        if not self._issuer.knows(resource):
            return _REFUSED, identity_bodies.NO_RESOURCE
        self._note(vm, own[0])
        return _FOUND, self._signed(own[0], resource, resource_id)

    def _note(self, vm: str, token: Token) -> None:
        """Write down who signed in, wherever its VM was answered."""
        if self._issuer.auth.required:
            audited = Audited(
                at=self._issuer.clock.wall(),
                token=token.id,
                name=token.name,
                source=f"vm {vm}",
                method="GET",
                path=PATH,
                status=_FOUND,
            )
            self._issuer.auth.audits.note(audited, refused=False, changes=False)

    def _resource_id(self, name: str) -> str | None:
        about = describe(self._service.fleet, name)
        if about is None:
            return None
        facts = instance.facts_of(
            about.vm,
            about.node,
            about.scope,
            subscription_id=about.subscription_id,
            location=about.location,
        )
        return facts.resource_id

    def _signed(self, token: Token, resource: str, resource_id: str) -> bytes:
        issued = self._issuer.issue(token, resource, resource_id)
        # Numbers as text, as on Azure.
        return msgspec.json.encode(
            {
                "access_token": issued.text,
                "client_id": issued.client_id,
                "expires_in": str(issued.until - issued.at),
                "expires_on": str(issued.until),
                "ext_expires_in": str(issued.until - issued.at),
                "not_before": str(issued.at),
                "resource": resource,
                "token_type": "Bearer",
            }
        )
