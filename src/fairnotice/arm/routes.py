"""Every address of Azure Resource Manager that there is, in one table."""

from fairnotice.arm.route import ArmRoute
from fairnotice.arm.routes_other import OTHER_ROUTES
from fairnotice.arm.routes_sets import SET_ROUTES
from fairnotice.arm.routes_vms import VM_ROUTES

ROUTES: tuple[ArmRoute, ...] = (*OTHER_ROUTES, *VM_ROUTES, *SET_ROUTES)
