#!/usr/bin/env bash
# A whole client of Scheduled Events in a shell: curl asks, jq reads. It looks once a second for an
# event of this VM, prepares, approves, and says when it is over. It ends after one event.
set -euo pipefail

here=http://169.254.169.254/metadata
events="$here/scheduledevents?api-version=2020-07-01"

ask() { curl -sf --max-time 10 --noproxy '*' -H Metadata:true "$@"; }
# An answer that is late, empty, an error or no document says nothing: it asks again.
look() { until ask "$events" | jq -ce 'select(.Events)' 2>/dev/null; do sleep 1; done; }
mine() { jq -c --arg vm "$vm" '[.Events[] | select(.Resources | index($vm))][0] // empty'; }

until vm=$(ask "$here/instance/compute/name?api-version=2021-02-01&format=text"); do sleep 1; done
echo "$vm listens"
until event=$(look | mine) && [ -n "$event" ]; do sleep 1; done

id=$(jq -r .EventId <<<"$event")
jq -r '"\(.EventType) is \(.EventStatus), not before \(.NotBefore)"' <<<"$event"

echo "preparing: stop taking work, save what must not be lost"

if [ "$(jq -r .EventStatus <<<"$event")" = Scheduled ]; then
    if ask "$events" -d "{\"StartRequests\":[{\"EventId\":\"$id\"}]}"; then
        echo "approved"
    else
        echo "not approved: it starts at NotBefore"
    fi
fi
while look | jq -e --arg id "$id" '.Events[] | select(.EventId == $id)' >/dev/null; do sleep 1; done
echo "over: take work again"
