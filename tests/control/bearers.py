"""A control plane that wants tokens, and somebody of each kind who asks it."""

from datetime import timedelta

from fairnotice.clock import SystemClock
from fairnotice.control.tokens import Wanted, make
from fairnotice.words import TokenRole

NOW = SystemClock().wall()
SCOPE = "availability-set:web"
ROLES = ("reader", "operator", "admin")
STRANGERS = (None, "malformed", "unknown", "wrong", "expired", "revoked")


def kept(store, name, role="operator", now=NOW, **more):
    """A token straight in the store: its text."""
    made = make(Wanted(name, TokenRole(role), **more), "test", now)
    assert store.add_token(made.token)
    return made.text


class Bearers:
    """A service, and somebody of each kind who asks it."""

    def __init__(self, served, store):
        self.served = served
        self.store = store
        self.texts = {role: kept(store, role + "-1", role) for role in ROLES}
        self.texts["endpoint"] = kept(store, "endpoint-1", "endpoint", node="node-0")
        self.texts["limited"] = kept(store, "user-1", scopes=(SCOPE,))
        self.texts["limited reader"] = kept(store, "user-2", "reader", scopes=(SCOPE,))
        self.texts["expired"] = kept(
            store, "late", "admin", NOW - timedelta(days=2), expires_days=1
        )
        revoked = make(Wanted("gone", TokenRole.ADMIN), "test", NOW)
        store.add_token(revoked.token)
        store.revoke_token(revoked.token.id, NOW)
        self.texts["revoked"] = revoked.text
        self.texts["unknown"] = make(Wanted("nobody", TokenRole.ADMIN), "test", NOW).text
        self.texts["wrong"] = self.texts["admin"][:-2] + "zz"
        self.texts["malformed"] = "fairnotice_1_2"

    def ask(self, who, method, path, body=None, **headers):
        """One request with the token of this kind; None: without."""
        if who is not None:
            headers["Authorization"] = f"Bearer {self.texts[who]}"
        return self.served.call(method.upper(), path, body, **headers)
