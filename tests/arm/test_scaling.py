"""The addresses of new instances: near those that there are, and never somebody else's."""

import pytest

from fairnotice.arm.scaling import free_addresses


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], ["127.69.0.10", "127.69.0.11"]),
        (["127.69.0.10", "127.69.0.12"], ["127.69.0.13", "127.69.0.14"]),
        (["10.0.0.253"], ["10.0.0.254", "10.0.1.1"]),
        # At the end of its network, those that are free before it.
        (["10.0.0.1", "10.255.255.254"], ["10.0.0.2", "10.0.0.3"]),
        (["127.69.0.11", "127.255.255.253"], ["127.255.255.254", "127.69.0.10"]),
        # Addresses that are nobody's here lead nowhere.
        (["10.0.0.1", "203.0.113.7"], ["10.0.0.2", "10.0.0.3"]),
        (["255.255.255.254"], ["127.69.0.10", "127.69.0.11"]),
        (["255.255.255.255", "fd00::1"], ["127.69.0.10", "127.69.0.11"]),
    ],
)
def test_free_addresses_follow_the_highest(taken, free):
    """In its own network: at the end of it from the beginning, and never beyond."""
    assert free_addresses(taken, 2) == tuple(free)


def test_a_network_that_is_full():
    """As many as there are left: two of all that begin with 192.168."""
    taken = [f"192.168.{high}.{low}" for high in range(256) for low in range(1, 255)]
    left = [taken.pop(5), taken.pop(7_000)]
    assert free_addresses(taken, 3) == tuple(left)
