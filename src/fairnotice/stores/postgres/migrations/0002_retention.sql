-- Forgetting looks for what is old, and must not read the whole journal for it.
CREATE INDEX journal_retention ON fairnotice.journal (lasting, at);
UPDATE fairnotice.service SET schema_version = 2;
