-- name: prepare_session
-- Durable when we are told so, instants in UTC, and no waiting for ever on somebody's lock.
SELECT
    set_config('synchronous_commit', 'on', false),
    set_config('timezone', 'UTC', false),
    set_config('lock_timeout', %s::text, false);

-- name: one_at_a_time
-- Whoever makes or migrates tables does so alone.
SELECT pg_advisory_xact_lock(hashtext('fairnotice'));

-- name: tables
-- Whether our schema is there, and which tables it holds.
SELECT
    to_regnamespace('fairnotice') IS NOT NULL,
    array(SELECT tablename::text FROM pg_tables WHERE schemaname = 'fairnotice');

-- name: schema_version
-- The number of the last migration that was applied.
SELECT schema_version FROM fairnotice.service;

-- name: make_room
-- Where the tables are kept as they were before a migration; an earlier try of it is gone.
DROP SCHEMA IF EXISTS {backup} CASCADE;
CREATE SCHEMA {backup};

-- name: back_up
-- Keep one table as it was before a migration.
CREATE TABLE {backup}.{table} AS TABLE fairnotice.{table};

-- name: begin_epoch
-- Take the lead, unless it belongs to one of several that share this database.
UPDATE fairnotice.service SET epoch = epoch + 1
WHERE NOT EXISTS (SELECT FROM fairnotice.lease WHERE expires_at > clock_timestamp())
RETURNING epoch;

-- name: prepare_lease_session
-- Nobody who renews a lease waits longer than a part of it, for a lock or for anything else.
SELECT
    set_config('synchronous_commit', 'on', false),
    set_config('timezone', 'UTC', false),
    set_config('lock_timeout', %(lock)s::text, false),
    set_config('statement_timeout', %(statement)s::text, false);

-- name: look_at_lease
-- Who leads, and for how much longer.
SELECT
    epoch,
    address,
    holder,
    renewed_at,
    extract(EPOCH FROM expires_at - renewed_at)::float8,
    extract(EPOCH FROM expires_at - clock_timestamp())::float8
FROM fairnotice.lease;

-- name: take_lease
-- Lead, provided that the lease is as it was found.
-- One statement: whoever is stopped while he sends it holds no lock. The lease's row comes first,
-- so that of two who try one finds it changed.
WITH taken AS (
    UPDATE fairnotice.lease SET
        epoch = (SELECT epoch + 1 FROM fairnotice.service),
        holder = %(holder)s,
        address = %(address)s,
        renewed_at = clock_timestamp(),
        expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
    WHERE holder = %(found_holder)s AND renewed_at = %(found_renewed_at)s
    RETURNING one
)
UPDATE fairnotice.service AS service SET epoch = service.epoch + 1
FROM taken WHERE service.one = taken.one
RETURNING service.epoch;

-- name: end_stale_commits
-- End the sessions whose unfinished commit keeps the lead from whoever may take it.
-- Their process is stopped, or cut off. Not where the lease was renewed or taken meanwhile.
SELECT pg_terminate_backend(held.pid)
FROM pg_locks AS held
JOIN pg_stat_activity AS session ON session.pid = held.pid
WHERE
    held.relation = 'fairnotice.service'::regclass
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND held.mode = 'RowExclusiveLock'
    AND held.granted
    AND held.pid <> pg_backend_pid()
    AND session.usename = current_user
    AND EXISTS (
        SELECT FROM fairnotice.lease
        WHERE holder = %(found_holder)s AND renewed_at = %(found_renewed_at)s
    );

-- name: renew_lease
-- Lead for another while, unless the lease or the lead itself has gone to another.
UPDATE fairnotice.lease SET
    renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE
    holder = %(holder)s
    AND epoch = %(epoch)s
    AND (SELECT epoch FROM fairnotice.service) = %(epoch)s
RETURNING epoch;

-- name: resign_lease
-- Lead no more: the next one need not wait until it has run out.
UPDATE fairnotice.lease SET expires_at = clock_timestamp()
WHERE holder = %(holder)s AND expires_at > clock_timestamp();

-- name: service
-- Where the journal stands.
SELECT epoch, revision, recorded_at, feed_from FROM fairnotice.service;

-- name: move_journal
-- Move the journal's end, provided that this epoch leads and the journal ends where it thinks.
UPDATE fairnotice.service
SET revision = %(revision)s, recorded_at = coalesce(%(recorded_at)s, recorded_at)
WHERE epoch = %(epoch)s AND revision = %(after)s
RETURNING revision;

-- name: remove_rows
-- Take rows out of the state.
DELETE FROM fairnotice.fleet AS fleet
USING unnest(%s::text[], %s::text[]) AS gone (kind, id)
WHERE fleet.kind = gone.kind AND fleet.id = gone.id;

-- name: keep_rows
-- Write rows; those that are there keep their position.
INSERT INTO fairnotice.fleet (position, kind, id, body)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])
ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body;

-- name: add_lines
-- Write lines of the journal.
INSERT INTO fairnotice.journal (revision, at, what, kind, id, about, lasting, body)
SELECT * FROM unnest(
    %s::bigint[], %s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::text[],
    %s::boolean[], %s::text[]
);

-- name: wake
-- Wake those who wait; heard when the transaction is committed.
SELECT pg_notify('fairnotice', %s::text);

-- name: listen
-- Be woken.
LISTEN fairnotice;

-- name: rows
-- The whole state, in the order in which rows were first written.
SELECT kind, body FROM fairnotice.fleet ORDER BY position;

-- name: lines_after
-- What follows a revision.
SELECT revision, what, at, body FROM fairnotice.journal
WHERE revision > %s ORDER BY revision LIMIT %s;

-- name: history
-- The story of one thing.
SELECT revision, what, at, body FROM fairnotice.journal
WHERE about = %s AND lasting ORDER BY revision;

-- name: story_of_event
-- Whose story an event belongs to: that of its operation.
SELECT about FROM fairnotice.journal WHERE what = 'EventAnnounced' AND id = %s LIMIT 1;

-- name: events_gone
-- Events that are over, the newest first; about one line in ten is one, so none is looked for long.
SELECT revision, what, at, body FROM fairnotice.journal
WHERE revision < %s AND what = 'EventGone' ORDER BY revision DESC LIMIT %s;

-- name: remove_old_lines
-- Forget some lines that are lasting or not, and older than this; which ones.
DELETE FROM fairnotice.journal
WHERE revision IN (
    SELECT revision FROM fairnotice.journal WHERE lasting = %s AND at < %s LIMIT %s
)
RETURNING revision;

-- name: move_feed
-- Say from where on the journal has every line.
UPDATE fairnotice.service SET feed_from = greatest(feed_from, %s);

-- name: tokens
-- Every token there ever was, and when it last changed.
SELECT changed, body FROM fairnotice.token;

-- name: tokens_alone
-- Nobody else changes a token until this transaction is over; reading goes on.
LOCK TABLE fairnotice.token IN SHARE ROW EXCLUSIVE MODE;

-- name: tokens_changed
-- Whether any token has changed.
SELECT coalesce(max(changed), 0) FROM fairnotice.token;

-- name: keep_token
-- Write a token.
INSERT INTO fairnotice.token (id, changed, body) VALUES (%s, %s, %s)
ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, body = excluded.body;

-- name: add_audit
-- Write lines of the audit.
INSERT INTO fairnotice.audit (at, body)
SELECT * FROM unnest(%s::timestamptz[], %s::text[]);

-- name: audit
-- Lines of the audit, the newest first.
SELECT number, body FROM fairnotice.audit
WHERE
    (%(before)s::bigint IS NULL OR number < %(before)s)
    AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
    AND (
        %(who)s::text IS NULL
        OR %(who)s IN (body::jsonb ->> 'name', body::jsonb ->> 'token')
    )
ORDER BY number DESC LIMIT %(limit)s;

-- name: remove_audit
-- Forget some lines of the audit that are older than this.
DELETE FROM fairnotice.audit
WHERE number IN (SELECT number FROM fairnotice.audit WHERE at < %s LIMIT %s);

-- name: webhooks
-- Every webhook, and how far it has come.
SELECT cursor, body FROM fairnotice.webhook;

-- name: webhooks_alone
-- Nobody else changes a webhook until this transaction is over; reading goes on.
LOCK TABLE fairnotice.webhook IN SHARE ROW EXCLUSIVE MODE;

-- name: add_webhook
-- Keep a new webhook.
INSERT INTO fairnotice.webhook (id, cursor, body) VALUES (%s, %s, %s);

-- name: change_webhook
-- Keep what is said of a webhook now.
UPDATE fairnotice.webhook SET body = %s WHERE id = %s;

-- name: remove_webhook
-- Forget a webhook.
DELETE FROM fairnotice.webhook WHERE id = %s;

-- name: remove_deliveries
-- Forget all deliveries of a webhook.
DELETE FROM fairnotice.delivery WHERE webhook = %s;

-- name: move_cursor
-- Say that a webhook's deliveries are queued so far, provided that they were so far until now.
UPDATE fairnotice.webhook SET cursor = %s WHERE id = %s AND cursor = %s;

-- name: add_deliveries
-- Queue deliveries, in their order.
INSERT INTO fairnotice.delivery (webhook, body)
SELECT %s, body FROM unnest(%s::text[]) WITH ORDINALITY AS given (body, place) ORDER BY place;

-- name: deliveries
-- Deliveries of a webhook that wait, or that were given up.
SELECT number, body FROM fairnotice.delivery
WHERE webhook = %s AND (dead_at IS NOT NULL) = %s AND number > %s ORDER BY number LIMIT %s;

-- name: deliveries_count
-- How many deliveries of a webhook wait, or were given up.
SELECT count(*) FROM fairnotice.delivery WHERE webhook = %s AND (dead_at IS NOT NULL) = %s;

-- name: remove_done
-- Forget deliveries that were taken.
DELETE FROM fairnotice.delivery WHERE number = ANY(%s::bigint[]);

-- name: keep_delivery
-- Note what came of a delivery.
UPDATE fairnotice.delivery SET dead_at = %s, body = %s WHERE number = %s;

-- name: remove_dead_letters
-- Forget some deliveries that were given up before this.
DELETE FROM fairnotice.delivery
WHERE number IN (SELECT number FROM fairnotice.delivery WHERE dead_at < %s LIMIT %s);

-- name: remove_dead_letters_beyond
-- Forget the oldest deliveries of a webhook that were given up, beyond so many.
DELETE FROM fairnotice.delivery
WHERE number IN (
    SELECT number FROM fairnotice.delivery
    WHERE webhook = %s AND dead_at IS NOT NULL ORDER BY number DESC OFFSET %s
);

-- name: copy_rows
-- The whole state, as it is copied.
SELECT kind, id, body FROM fairnotice.fleet ORDER BY position;

-- name: copy_lines
-- The whole journal, as it is copied.
SELECT revision, at, what, kind, id, about, lasting, body FROM fairnotice.journal
ORDER BY revision;

-- name: copy_tokens
-- All tokens, as they are copied.
SELECT id, changed, body FROM fairnotice.token ORDER BY id;

-- name: copy_audit
-- The whole audit, as it is copied.
SELECT at, body FROM fairnotice.audit ORDER BY number;

-- name: copy_webhooks
-- All webhooks, as they are copied.
SELECT id, cursor, body FROM fairnotice.webhook ORDER BY id;

-- name: copy_deliveries
-- All deliveries, as they are copied.
SELECT webhook, dead_at, body FROM fairnotice.delivery ORDER BY number;

-- name: hold_service
-- Keep everybody else from leading and committing until this transaction ends.
SELECT FROM fairnotice.service FOR UPDATE;

-- name: holds_something
-- Whether anything was ever written here.
SELECT
    (SELECT revision FROM fairnotice.service) > 0
    OR EXISTS (SELECT FROM fairnotice.token)
    OR EXISTS (SELECT FROM fairnotice.audit)
    OR EXISTS (SELECT FROM fairnotice.webhook);

-- name: fill_rows
-- Take over rows of the state.
COPY fairnotice.fleet (position, kind, id, body) FROM STDIN;

-- name: fill_lines
-- Take over lines of the journal.
COPY fairnotice.journal (revision, at, what, kind, id, about, lasting, body) FROM STDIN;

-- name: fill_tokens
-- Take over tokens.
COPY fairnotice.token (id, changed, body) FROM STDIN;

-- name: fill_audit
-- Take over what people asked for.
COPY fairnotice.audit (at, body) FROM STDIN;

-- name: fill_webhooks
-- Take over webhooks.
COPY fairnotice.webhook (id, cursor, body) FROM STDIN;

-- name: fill_deliveries
-- Take over deliveries.
COPY fairnotice.delivery (webhook, dead_at, body) FROM STDIN;

-- name: fill_service
-- Go on where a copy ended; no line before that is there for those who follow.
UPDATE fairnotice.service
SET epoch = greatest(epoch, %(epoch)s), revision = %(revision)s, recorded_at = %(recorded_at)s,
    feed_from = %(revision)s;
