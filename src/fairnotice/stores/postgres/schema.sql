-- The schema of a new database: what all migrations together make (a test compares them).

CREATE SCHEMA fairnotice;

-- Where the journal stands. One row.
CREATE TABLE fairnotice.service (
    one integer PRIMARY KEY CHECK (one = 1),
    schema_version integer NOT NULL,
    epoch bigint NOT NULL,
    revision bigint NOT NULL,
    recorded_at timestamptz,
    feed_from bigint NOT NULL
);
INSERT INTO fairnotice.service VALUES (1, 3, 0, 0, NULL, 0);

-- The state: every row as it is now, in the order in which they were first written. Rows are
-- written over and over: room in each page keeps that cheap.
CREATE TABLE fairnotice.fleet (
    position bigint PRIMARY KEY,
    kind text NOT NULL,
    id text NOT NULL,
    body text NOT NULL,
    UNIQUE (kind, id)
) WITH (fillfactor = 80);

-- What happened: one line per change.
CREATE TABLE fairnotice.journal (
    revision bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    what text NOT NULL,
    kind text NOT NULL,
    id text NOT NULL,
    about text NOT NULL,
    lasting boolean NOT NULL,
    body text NOT NULL
);
CREATE INDEX journal_history ON fairnotice.journal (about) WHERE lasting;

-- Forgetting looks for what is old, and must not read the whole journal for it.
CREATE INDEX journal_retention ON fairnotice.journal (lasting, at);

-- Whoever asks for the story of an event knows its id and not its operation's.
CREATE INDEX journal_events ON fairnotice.journal (id) WHERE what = 'EventAnnounced';
