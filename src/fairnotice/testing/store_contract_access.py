"""The proof of a store's part about tokens and the audit (stores/access.py)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from fairnotice.stores.access import Audited, Token
from fairnotice.stores.store import Store
from fairnotice.testing.sample_rows import START
from fairnotice.words import TokenRole


def promise(kept: object, sentence: str) -> None:
    """An AssertionError with this sentence, unless it is so."""
    if not kept:
        raise AssertionError(f"A store's promise is broken: {sentence}")


@contextmanager
def _open(make_store: Callable[[], Store]) -> Iterator[Store]:
    store = make_store()
    try:
        yield store
    finally:
        store.close()


def _token(number: int, **more: object) -> Token:
    given: dict[str, object] = {
        "id": f"{number:016x}",
        "name": f"user {number}",
        "role": TokenRole.OPERATOR,
        "secret_hash": f"{number:064x}",
        "created_at": START + timedelta(seconds=number),
        "created_by": "admin ☃",
        "scopes": ("availability-set:web", 'vm:a"b\\c'),
        "resource_groups": ("shop",),
        "node": None if number % 2 else "node-0",
        "expires_at": START + timedelta(days=1),
    }
    return Token(**{**given, **more})  # type: ignore[arg-type]


def _tokens_come_back(make_store: Callable[[], Store]) -> None:
    # The younger first: they are told in the order of their age.
    tokens = [_token(2), _token(1, node=None, expires_at=None)]
    with _open(make_store) as store:
        promise(store.tokens_changed() == 0, "no token has changed where there is none")
        promise(store.tokens() == (0, []), "there is no token before one is added")
        promise(all(map(store.add_token, tokens)), "a token with a new name is kept")
    with _open(make_store) as store:
        known = store.tokens()
        promise(known.tokens == tokens[::-1], "tokens come back as they were, the oldest first")
        promise(known.changed == store.tokens_changed() > 0, "a new token is a change")


def _names_of_tokens_are_taken_for_ever(make_store: Callable[[], Store]) -> None:
    with _open(make_store) as store:
        before = store.tokens()
        taken = before.tokens[0]
        store.revoke_token(taken.id, START)
        after = store.tokens()
        for again in (
            _token(3, name=taken.name),
            _token(3, name=taken.name.upper()),
            _token(3, id=taken.id),
        ):
            promise(not store.add_token(again), "no second token has the name or id of another")
        promise(store.tokens() == after, "a token that was not added has changed nothing")


def _revoked_tokens_stay_revoked(make_store: Callable[[], Store]) -> None:
    later = START + timedelta(hours=1)
    with _open(make_store) as store:
        store.add_token(_token(4))
        before = store.tokens_changed()
        token = store.revoke_token(_token(4).id, later)
        as_it_is = msgspec.structs.replace(_token(4), revoked_at=later)
        promise(token == as_it_is, "a token is revoked at the instant that was said")
        promise(store.tokens_changed() > before, "a revocation is a change")
        again = store.revoke_token(_token(4).id, later + timedelta(hours=1))
        promise(again == as_it_is, "a second revocation moves nothing")
        promise(store.revoke_token("nobody", later) is None, "what is not there is not revoked")
    with _open(make_store) as store:
        promise(as_it_is in store.tokens().tokens, "a revocation is durable")


def _audited(number: int) -> Audited:
    return Audited(
        at=START + timedelta(seconds=number),
        token=f"{number % 2:016x}" if number % 3 else None,
        name=f"user {number % 2} ☃" if number % 3 else "",
        source="127.0.0.1",
        method="POST",
        path="/v1/vms/a%22b/restart",
        status=202,
        operations=(f"{number}.0",),
        left_out=number,
    )


def _the_audit_is_told_backwards(make_store: Callable[[], Store]) -> None:
    lines = [_audited(number) for number in range(7)]
    with _open(make_store) as store:
        store.add_audit(lines[:4])
        store.add_audit(lines[4:])
    with _open(make_store) as store:
        found = store.audit(100)
        promise([one.audited for one in found] == lines[::-1], "the newest line is told first")
        numbers = [one.number for one in found]
        promise(numbers == sorted(set(numbers), reverse=True), "every line has its own number")
        promise(store.audit(2) == found[:2], "no more lines are told than were asked for")
        promise(store.audit(9, before=numbers[2]) == found[3:], "it is read on before a number")
        since = store.audit(9, since=lines[5].at)
        promise(since == found[:2], "lines are told from an instant on")
        for who in (lines[1].name, lines[1].token):
            mine = [one for one in found if who in (one.audited.name, one.audited.token)]
            promise(store.audit(9, who=who) == mine != [], "lines are told by name and by token")


def _old_lines_of_the_audit_are_forgotten(make_store: Callable[[], Store]) -> None:
    with _open(make_store) as store:
        before = store.audit(100)
        instant = before[1].audited.at
        forgotten = sum(iter(lambda: store.forget_audit(instant), 0))
        promise(forgotten == len(before) - 2, "forget_audit says how many lines it deleted")
    with _open(make_store) as store:
        promise(store.audit(100) == before[:2], "lines before an instant are forgotten, no others")


PROMISES: tuple[Callable[[Callable[[], Store]], None], ...] = (
    _tokens_come_back,
    _names_of_tokens_are_taken_for_ever,
    _revoked_tokens_stay_revoked,
    _the_audit_is_told_backwards,
    _old_lines_of_the_audit_are_forgotten,
)
