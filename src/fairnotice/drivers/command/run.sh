#!/bin/sh
# Carries out one impact, once, and outlives the control plane that asked for it.
#
#   run.sh DIRECTORY NAME EPOCH LIMIT_SECONDS KILL_AFTER_SECONDS COMMAND...
#
# In DIRECTORY: lock and epoch for all keys; per key NAME.lock (held while it is under way),
# NAME.begun (written before anything is done), NAME.out (what the command prints) and NAME.ended
# (its exit code). drivers/command/state.py reads them, under the same locks.
#
# The last thing it does is to say a word on its standard output, for whoever still listens:
#   older       a later epoch was seen; nothing was done
#   unwritable  DIRECTORY cannot be written; nothing was done
#   known       the key had begun before; it is not under way any more
#   ended       NAME.ended tells how
set -u
umask 077

directory=$1 name=$2 epoch=$3 limit_seconds=$4 kill_after_seconds=$5
shift 5
key=$directory/$name

say() {
    printf '%s\n' "$1"
    exit 0
}

# Nothing of this key was begun, and it stays so.
take_back() {
    rm -f "$key.begun" "$key.ending" "$key.out"
    sync "$directory"
    say "$1"
}

# --- One at a time: is our epoch the highest, and is the key new? ---

# A redirection that fails ends a POSIX shell, so it is tried in a subshell first.
(: >>"$directory/lock") 2>/dev/null || say unwritable
exec 8>>"$directory/lock"
flock 8 || say unwritable

highest=0
if [ -e "$directory/epoch" ]; then
    read -r highest <"$directory/epoch" || say unwritable
fi
[ "$epoch" -lt "$highest" ] && say older
if [ "$epoch" -gt "$highest" ]; then
    { printf '%s\n' "$epoch" >"$directory/epoch.new" &&
        sync "$directory/epoch.new" &&
        mv "$directory/epoch.new" "$directory/epoch" &&
        sync "$directory"; } 2>/dev/null || say unwritable
fi

(: >>"$key.lock") 2>/dev/null || say unwritable
exec 9>>"$key.lock"
if [ -e "$key.begun" ] || [ -e "$key.ended" ]; then
    # Whoever is first holds the lock until it is over; others are not kept waiting for that.
    exec 8>&-
    flock 9
    say known
fi
flock 9 || say unwritable

# --- The intent, on the disk before anything is done ---

# The place for the exit code is taken now, so that a disk that is full later cannot lose it.
{ printf '%s\n' '...' >"$key.ending" && sync "$key.ending"; } 2>/dev/null || take_back unwritable
{ printf '%s %s\n' "$epoch" "$limit_seconds" >"$key.begun" && sync "$key.begun" &&
    sync "$directory"; } 2>/dev/null || take_back unwritable
exec 8>&-

# --- The deed ---

# It gets neither the lock, which is to be free when we are gone, nor our standard output.
timeout --kill-after="$kill_after_seconds" "$limit_seconds" "$@" >"$key.out" 2>&1 9>&-
code=$?
# 76: it has seen a later epoch, and promises that it has done nothing.
[ "$code" -eq 76 ] && take_back older

# --- The outcome ---

printf '%03d\n' "$code" 1<>"$key.ending"
sync "$key.ending"
mv "$key.ending" "$key.ended"
sync "$directory"
say ended
