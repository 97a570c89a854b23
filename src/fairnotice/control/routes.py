"""Every address of the native API, in one table."""

from fairnotice.control.route import Route, foreseeable
from fairnotice.control.routes_access import ACCESS_ROUTES
from fairnotice.control.routes_backup import BACKUP_ROUTES
from fairnotice.control.routes_endpoints import ENDPOINT_ROUTES
from fairnotice.control.routes_events import EVENT_ROUTES
from fairnotice.control.routes_fleet import FAULT_ROUTES, FLEET_ROUTES
from fairnotice.control.routes_nodes import NODE_ROUTES, ROLLOUT_ROUTES
from fairnotice.control.routes_vms import SET_ROUTES, VM_ROUTES
from fairnotice.control.routes_webhooks import WEBHOOK_ROUTES

ROUTES: tuple[Route, ...] = tuple(
    foreseeable(route)
    for route in (
        *VM_ROUTES,
        *NODE_ROUTES,
        *ENDPOINT_ROUTES,
        *SET_ROUTES,
        *EVENT_ROUTES,
        *ROLLOUT_ROUTES,
        *FAULT_ROUTES,
        *FLEET_ROUTES,
        *BACKUP_ROUTES,
        *ACCESS_ROUTES,
        *WEBHOOK_ROUTES,
    )
)
