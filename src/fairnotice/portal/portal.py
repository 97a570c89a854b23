"""The portal as a front of a service: its addresses, and signing in where that is asked for."""

from functools import partial

from starlette.routing import Route

from fairnotice.control.running import Running
from fairnotice.portal.front import addresses
from fairnotice.portal.signing_in import SignIn


def portal(run: Running) -> list[Route]:
    """Every address of the portal; a browser may sign in from now on."""
    run.in_front = partial(SignIn, auth=run.auth)
    return addresses(run)
