-- Forgetting looks for what is old, and must not read the whole journal for it.
CREATE INDEX journal_retention ON journal (lasting, at);
UPDATE service SET schema_version = 2;
