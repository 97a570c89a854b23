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
-- No lease: one process at a time has the file.
UPDATE service SET schema_version = 4;
