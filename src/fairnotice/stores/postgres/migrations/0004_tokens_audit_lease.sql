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
UPDATE fairnotice.service SET schema_version = 4;
