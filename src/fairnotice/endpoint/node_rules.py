"""The packet filter of a node (nftables): what keeps VMs from being taken for one another.

The endpoint refuses who is not who he says (vouching.py). These rules keep him from getting so far,
and so keep the VM whose place he wants reachable: a frame from a VM's port that claims another VM's
hardware or address goes nowhere, and the bridge learns nothing from it. What comes from elsewhere,
an uplink above all, is let through: a VM that is being migrated here still talks from there. All
of it is about the ports of the file of places, so that other bridges of the node are left alone.

A kernel takes off tags that name no VLAN, any number of them, and takes in what was wrapped. So
rules ask what is inside of the one tag that a bridge has taken off (`meta protocol`; `arp` alone
asks for the first type of the frame, and is passed by any tag), and what has more of them, or one
that names no VLAN, goes nowhere. One that names a VLAN is let through and held to the same rules.
"""

from collections.abc import Iterable, Iterator

from fairnotice.endpoint.places import Place, Places

# Before anything else looks.
PRIORITY = -300
# A frame that is tagged, the number of its VLAN in the tag, and what is tagged once more inside.
TAGGED, NO_VLAN = "ether type { 8021q, 8021ad }", "@ll,116,12 0"
TAGGED_AGAIN = "meta protocol { 8021q, 8021ad }"


def table(bridge: str) -> str:
    """What the tables of this bridge are called, in both families."""
    return f"fairnotice_{bridge}"


def ruleset(bridge: str, interface: str, addresses: Iterable[str]) -> str:
    """Both tables, in place of those that are there, in one step."""
    name, ours = table(bridge), ", ".join(addresses)
    claimed = "arp saddr ip @addresses iifname . arp saddr ether . arp saddr ip"
    vms = ", ".join(f'"{one}"' for one in dict.fromkeys((bridge, interface)))
    return f"""\
table bridge {name}
delete table bridge {name}
table bridge {name} {{
	set ports {{
		type ifname
	}}
	set macs {{
		type ether_addr
	}}
	set addresses {{
		type ipv4_addr
	}}
	set plugged {{
		type ifname . ether_addr
	}}
	set vms {{
		type ifname . ether_addr . ipv4_addr
	}}
	chain prerouting {{
		type filter hook prerouting priority {PRIORITY}; policy accept;
		iifname != @ports accept
		{TAGGED_AGAIN} counter drop
		{TAGGED} {NO_VLAN} counter drop
		ip saddr {{ {ours} }} counter drop
		meta protocol arp arp saddr ip {{ {ours} }} counter drop
		ether saddr @macs iifname . ether saddr != @plugged counter drop
		meta protocol arp {claimed} != @vms counter drop
		ip saddr @addresses iifname . ether saddr . ip saddr != @vms counter drop
	}}
	chain forward {{
		type filter hook forward priority {PRIORITY}; policy accept;
		iifname != @ports accept
		ip daddr {{ {ours} }} counter drop
		meta protocol arp arp daddr ip {{ {ours} }} counter drop
	}}
}}
table inet {name}
delete table inet {name}
table inet {name} {{
	chain input {{
		type filter hook input priority {PRIORITY}; policy accept;
		iifname != {{ "lo", {vms} }} ip daddr {{ {ours} }} counter drop
		iifname {{ {vms} }} ip daddr 127.0.0.0/8 counter drop
		iifname {{ {vms} }} ip saddr 127.0.0.0/8 counter drop
	}}
	chain forward {{
		type filter hook forward priority {PRIORITY}; policy accept;
		ip daddr {{ {ours} }} counter drop
	}}
}}
"""


def elements(bridge: str, places: Places) -> str:
    """Who is where, in place of who was where, in one step."""
    known = [one for found in places.values() for one in found]
    sets: dict[str, list[str]] = {
        "ports": [f'"{one.port}"' for one in known],
        "macs": [one.mac for one in known if one.mac],
        "addresses": [address for one in known for address in _version_four(one)],
        "plugged": [f'"{one.port}" . {one.mac}' for one in known if one.mac],
        "vms": [
            f'"{one.port}" . {one.mac} . {address}'
            for one in known
            for address in _version_four(one)
        ],
    }
    return "\n".join(_filled(table(bridge), name, found) for name, found in sets.items()) + "\n"


def _filled(of_table: str, name: str, found: list[str]) -> str:
    line = f"flush set bridge {of_table} {name}"
    if not found:
        return line
    once = ", ".join(dict.fromkeys(found))
    return f"{line}\nadd element bridge {of_table} {name} {{ {once} }}"


def _version_four(place: Place) -> Iterator[str]:
    """Its addresses, as far as they can be told from its neighbours' by its hardware."""
    return (one for one in place.addresses if place.mac and ":" not in one)
