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
UPDATE service SET schema_version = 5;
