"""The names under one key of an index, few or many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.engine.members import PAGE, Pages, joined, parted


def members(count):
    """So many names, joined one by one."""
    found = ()
    for number in range(count):
        found = joined(found, f"vm-{number}")
    return found


@pytest.mark.parametrize("count", [0, 1, PAGE, PAGE + 1, 3 * PAGE + 7])
def test_however_many_they_are_they_read_as_a_tuple_does(count):
    """Length, order, looking for one, positions and equality."""
    found = members(count)
    wanted = tuple(f"vm-{number}" for number in range(count))
    assert found == wanted
    assert wanted == found
    assert hash(found) == hash(wanted)
    assert len(found) == count
    assert list(found) == list(wanted)
    assert found[1:3] == wanted[1:3]
    assert "vm-0" in found or not count
    assert f"vm-{count}" not in found
    assert isinstance(found, Pages) == (count > PAGE)
    if count > PAGE:
        assert len(found._pages) == -(-count // PAGE)


def test_what_was_before_stays_as_it_was():
    """A draft lays its own over the fleet's, and the fleet's is not touched."""
    before = members(2 * PAGE)
    kept = tuple(before)
    joined(before, "new")
    parted(before, "vm-3")
    assert tuple(before) == kept
    assert repr(before) == f"Pages of {2 * PAGE} names"
    assert before != "another thing"
    assert before[0] == "vm-0"


def test_many_that_become_few_are_a_tuple_again():
    """Everybody leaves, from the front and from the back."""
    found = members(2 * PAGE)
    for number in range(PAGE):
        found = parted(found, f"vm-{number}")
    assert isinstance(found, Pages)
    for number in reversed(range(PAGE, 2 * PAGE)):
        found = parted(found, f"vm-{number}")
        assert isinstance(found, Pages) == (len(found) > PAGE // 2)
    assert found == ()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60), st.integers(0, 3))
def test_it_is_as_a_list_whatever_comes_and_goes(steps, pages):
    """Joining and leaving at random, beside a list that does the same."""
    found = members(pages * PAGE)
    beside = list(found)
    for comes, number in steps:
        name = f"vm-{number * 97}"
        if comes and name not in beside:
            found = joined(found, name)
            beside.append(name)
        elif not comes and name in beside:
            found = parted(found, name)
            beside.remove(name)
    assert list(found) == beside
