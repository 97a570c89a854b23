-- name: tables
-- The names of all tables, to know whose database this is.
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: schema_version
-- The number of the last migration that was applied.
SELECT schema_version FROM service;

-- name: begin_epoch
-- Take the lead.
UPDATE service SET epoch = epoch + 1;

-- name: service
-- Where the journal stands.
SELECT epoch, revision, recorded_at, feed_from FROM service;

-- name: move_journal
-- Move the journal's end, provided that this epoch leads and the journal ends where it thinks.
UPDATE service
SET revision = :revision, recorded_at = coalesce(:recorded_at, recorded_at)
WHERE epoch = :epoch AND revision = :after;

-- name: remove_row
-- Take a row out of the state.
DELETE FROM fleet WHERE kind = ? AND id = ?;

-- name: keep_row
-- Write a row; one that is there keeps its position.
INSERT INTO fleet (position, kind, id, body) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body;

-- name: add_line
-- Write one line of the journal.
INSERT INTO journal (revision, at, what, kind, id, about, lasting, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: rows
-- The whole state, in the order in which rows were first written.
SELECT kind, body FROM fleet ORDER BY position;

-- name: lines_after
-- What follows a revision.
SELECT revision, what, at, body FROM journal WHERE revision > ? ORDER BY revision LIMIT ?;

-- name: history
-- The story of one thing.
SELECT revision, what, at, body FROM journal WHERE about = ? AND lasting = 1 ORDER BY revision;

-- name: story_of_event
-- Whose story an event belongs to: that of its operation.
SELECT about FROM journal WHERE what = 'EventAnnounced' AND id = ? LIMIT 1;

-- name: events_gone
-- Events that are over, the newest first; about one line in ten is one, so none is looked for long.
SELECT revision, what, at, body FROM journal
WHERE revision < ? AND what = 'EventGone' ORDER BY revision DESC LIMIT ?;

-- name: old_lines
-- Some lines that are lasting or not, and older than this.
SELECT revision FROM journal WHERE lasting = ? AND at < ? LIMIT ?;

-- name: remove_line
-- Forget one line of the journal.
DELETE FROM journal WHERE revision = ?;

-- name: move_feed
-- Say from where on the journal has every line.
UPDATE service SET feed_from = max(feed_from, ?);

-- name: tokens
-- Every token there ever was, and when it last changed.
SELECT changed, body FROM token;

-- name: tokens_changed
-- Whether any token has changed.
SELECT coalesce(max(changed), 0) FROM token;

-- name: keep_token
-- Write a token.
INSERT INTO token (id, changed, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, body = excluded.body;

-- name: add_audit
-- Write one line of the audit.
INSERT INTO audit (at, body) VALUES (?, ?);

-- name: audit
-- Lines of the audit, the newest first.
SELECT number, body FROM audit
WHERE
    (:before IS NULL OR number < :before)
    AND (:since IS NULL OR at >= :since)
    AND (:who IS NULL OR :who IN (json_extract(body, '$.name'), json_extract(body, '$.token')))
ORDER BY number DESC LIMIT :limit;

-- name: old_audit
-- Some lines of the audit that are older than this.
SELECT number FROM audit WHERE at < ? LIMIT ?;

-- name: remove_audit
-- Forget one line of the audit.
DELETE FROM audit WHERE number = ?;

-- name: webhooks
-- Every webhook, and how far it has come.
SELECT cursor, body FROM webhook;

-- name: add_webhook
-- Keep a new webhook.
INSERT INTO webhook (id, cursor, body) VALUES (?, ?, ?);

-- name: change_webhook
-- Keep what is said of a webhook now.
UPDATE webhook SET body = ? WHERE id = ?;

-- name: remove_webhook
-- Forget a webhook.
DELETE FROM webhook WHERE id = ?;

-- name: remove_deliveries
-- Forget all deliveries of a webhook.
DELETE FROM delivery WHERE webhook = ?;

-- name: move_cursor
-- Say that a webhook's deliveries are queued so far, provided that they were so far until now.
UPDATE webhook SET cursor = ? WHERE id = ? AND cursor = ?;

-- name: add_delivery
-- Queue a delivery.
INSERT INTO delivery (webhook, dead_at, body) VALUES (?, ?, ?);

-- name: deliveries
-- Deliveries of a webhook that wait, or that were given up.
SELECT number, body FROM delivery
WHERE webhook = ? AND (dead_at IS NOT NULL) = ? AND number > ? ORDER BY number LIMIT ?;

-- name: deliveries_count
-- How many deliveries of a webhook wait, or were given up.
SELECT count(*) FROM delivery WHERE webhook = ? AND (dead_at IS NOT NULL) = ?;

-- name: remove_delivery
-- Forget a delivery.
DELETE FROM delivery WHERE number = ?;

-- name: keep_delivery
-- Note what came of a delivery.
UPDATE delivery SET dead_at = ?, body = ? WHERE number = ?;

-- name: old_dead_letters
-- Some deliveries that were given up before this.
SELECT number FROM delivery WHERE dead_at < ? LIMIT ?;

-- name: dead_letters_beyond
-- The oldest deliveries of a webhook that were given up, beyond so many.
SELECT number FROM delivery
WHERE webhook = ? AND dead_at IS NOT NULL ORDER BY number DESC LIMIT -1 OFFSET ?;

-- name: copy_rows
-- The whole state, as it is copied.
SELECT kind, id, body FROM fleet ORDER BY position;

-- name: copy_lines
-- The whole journal, as it is copied.
SELECT revision, at, what, kind, id, about, lasting, body FROM journal ORDER BY revision;

-- name: copy_tokens
-- All tokens, as they are copied.
SELECT id, changed, body FROM token ORDER BY id;

-- name: copy_audit
-- The whole audit, as it is copied.
SELECT at, body FROM audit ORDER BY number;

-- name: copy_webhooks
-- All webhooks, as they are copied.
SELECT id, cursor, body FROM webhook ORDER BY id;

-- name: copy_deliveries
-- All deliveries, as they are copied.
SELECT webhook, dead_at, body FROM delivery ORDER BY number;

-- name: holds_something
-- Whether anything was ever written here.
SELECT
    (SELECT revision FROM service) > 0
    OR EXISTS (SELECT 1 FROM token)
    OR EXISTS (SELECT 1 FROM audit)
    OR EXISTS (SELECT 1 FROM webhook);

-- name: fill_service
-- Go on where a copy ended; no line before that is there for those who follow.
UPDATE service
SET epoch = max(epoch, :epoch), revision = :revision, recorded_at = :recorded_at,
    feed_from = :revision;
