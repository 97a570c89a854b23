-- Whoever asks for the story of an event knows its id and not its operation's.
CREATE INDEX journal_events ON journal (id) WHERE what = 'EventAnnounced';
UPDATE service SET schema_version = 3;
