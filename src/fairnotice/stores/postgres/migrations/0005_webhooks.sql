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
UPDATE fairnotice.service SET schema_version = 5;
