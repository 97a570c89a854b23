"""What libvirt does when a guest shuts down: whom an impact ends, it does not boot as well.

A domain may have <on_poweroff>restart</on_poweroff>. libvirt boots its guest again in the same QEMU
then, so that the domain never goes off, and nobody could tell that its guest has heard. So before
the guest is asked, the domain that runs is made to end with it, and its definition is left alone:
started again, it is as its owner has chosen. Where it runs on after all, that is given back. What
it was is kept on the domain for as long as it runs, for whoever comes next.

Of what it does at a reset nothing is held: one with <on_reboot>destroy</on_reboot> is not reset at
all. Firmware resets again before it boots, and nobody is told which one was the last: what is given
back before that ends the domain after all.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.footing import Footing, Superseded
from fairnotice.drivers.libvirt.host import Host, Sight
from fairnotice.drivers.libvirt.line import Trouble

log = logging.getLogger(__name__)

# All that is not `destroy`. QEMU's driver knows only the first, libvirt's test driver all of them.
_CHOICES = {
    "restart": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_RESTART,
    "rename-restart": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_RESTART_RENAME,
    "preserve": libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_PRESERVE,
}
# At these, what is reset does not run on.
_ENDS = ("destroy", "preserve")


def is_ended_by_a_reset(sight: Sight) -> bool:
    """Whether libvirt would end it where it is to be reset, as its owner has chosen."""
    return _chosen(sight.xml, "on_reboot") in _ENDS


async def hold_restart(on: Footing, host: Host, sight: Sight) -> None:
    """Have it end when its guest does, this time; Trouble where libvirt refuses that."""
    if _chosen(sight.xml) in _CHOICES:
        await on.insist(host, sight, _end_with_its_guest)


async def give_restart_back(on: Footing, places: Mapping[str, Sight]) -> None:
    """Where it runs on, what its owner has chosen; unless that is a later impact's to do."""
    for name, sight in places.items():
        if records.elements(sight.xml, records.POWEROFF):
            try:
                with suppress(Superseded):
                    await on.insist(on.hosts[name], sight, _do_as_chosen)
            except Trouble as error:
                log.warning(
                    "%s is not restarted any more when its guest shuts down: %s",
                    sight.domain,
                    error,
                )


def _chosen(xml: str, what: str = "on_poweroff") -> str | None:
    return ET.fromstring(xml).findtext(what)  # noqa: S314 - libvirtd wrote it


def _end_with_its_guest(domain: Any) -> None:  # noqa: ANN401 - libvirt has no types
    chosen = _chosen(domain.XMLDesc(0))
    if chosen in _CHOICES:
        # First: whoever finds it changed finds what it was.
        _note(domain, f"<poweroff chosen='{chosen}'/>")
        _set(domain, libvirt.VIR_DOMAIN_LIFECYCLE_ACTION_DESTROY)


def _do_as_chosen(domain: Any) -> None:  # noqa: ANN401
    xml = domain.XMLDesc(0)
    for element in records.elements(xml, records.POWEROFF):
        chosen = element.get("chosen", "")
        if chosen in _CHOICES and chosen != _chosen(xml):
            _set(domain, _CHOICES[chosen])
        _note(domain, None)


def _set(domain: Any, action: int) -> None:  # noqa: ANN401
    on_poweroff = libvirt.VIR_DOMAIN_LIFECYCLE_POWEROFF
    domain.setLifecycleAction(on_poweroff, action, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _note(domain: Any, element: str | None) -> None:  # noqa: ANN401
    domain.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        element,
        records.PREFIX,
        records.POWEROFF,
        libvirt.VIR_DOMAIN_AFFECT_LIVE,
    )
