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
INSERT INTO fairnotice.service VALUES (1, 5, 0, 0, NULL, 0);

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

-- Who may ask for what. A token's secret is only here as its hash; `changed` grows with every
-- change, so that who keeps them in memory sees that he has to look again.
CREATE TABLE fairnotice.token (
    id text PRIMARY KEY,
    changed bigint NOT NULL,
    body text NOT NULL
);

-- Who asked for what, whatever came of it.
CREATE TABLE fairnotice.audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    body text NOT NULL
);
CREATE INDEX audit_retention ON fairnotice.audit (at);

-- Which control plane leads, where it is asked, and until when by the clock of this database. Apart
-- from the service's row, so that nobody who renews it waits for a commit. One row.
CREATE TABLE fairnotice.lease (
    one integer PRIMARY KEY CHECK (one = 1),
    epoch bigint NOT NULL,
    holder text NOT NULL,
    address text NOT NULL,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
INSERT INTO fairnotice.lease VALUES (1, 0, '', '', 'epoch', 'epoch');

-- Who outside is told of events, and up to which revision his deliveries are queued.
CREATE TABLE fairnotice.webhook (
    id text PRIMARY KEY,
    cursor bigint NOT NULL,
    body text NOT NULL
);

-- What webhooks are told, in its order, until they have taken it; and what was given up. No number
-- is given twice: whoever has one may still hold it when its row is gone.
CREATE TABLE fairnotice.delivery (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook text NOT NULL,
    dead_at timestamptz,
    body text NOT NULL
);
CREATE INDEX delivery_order ON fairnotice.delivery (webhook, number);
CREATE INDEX delivery_retention ON fairnotice.delivery (dead_at) WHERE dead_at IS NOT NULL;
