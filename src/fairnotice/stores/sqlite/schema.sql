-- The schema of a new database: what all migrations together make (a test compares them).

-- Where the journal stands. One row.
CREATE TABLE service (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    recorded_at TEXT,
    feed_from INTEGER NOT NULL
);
INSERT INTO service VALUES (1, 5, 0, 0, NULL, 0);

-- The state: every row as it is now, in the order in which they were first written.
CREATE TABLE fleet (
    position INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (kind, id)
);

-- What happened: one line per change.
CREATE TABLE journal (
    revision INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    what TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    about TEXT NOT NULL,
    lasting INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX journal_history ON journal (about) WHERE lasting = 1;

-- Forgetting looks for what is old, and must not read the whole journal for it.
CREATE INDEX journal_retention ON journal (lasting, at);

-- Whoever asks for the story of an event knows its id and not its operation's.
CREATE INDEX journal_events ON journal (id) WHERE what = 'EventAnnounced';

-- Who may ask for what. A token's secret is only here as its hash; `changed` grows with every
-- change, so that who keeps them in memory sees that he has to look again.
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    changed INTEGER NOT NULL,
    body TEXT NOT NULL
);

-- Who asked for what, whatever came of it.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX audit_retention ON audit (at);

-- Who outside is told of events, and up to which revision his deliveries are queued.
CREATE TABLE webhook (
    id TEXT PRIMARY KEY,
    cursor INTEGER NOT NULL,
    body TEXT NOT NULL
);

-- What webhooks are told, in its order, until they have taken it; and what was given up. No number
-- is given twice: whoever has one may still hold it when its row is gone.
CREATE TABLE delivery (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook TEXT NOT NULL,
    dead_at TEXT,
    body TEXT NOT NULL
);
CREATE INDEX delivery_order ON delivery (webhook, number);
CREATE INDEX delivery_retention ON delivery (dead_at) WHERE dead_at IS NOT NULL;
