#!/usr/bin/env bash
# A whole client of Scheduled Events in a shell: curl asks, jq reads. It looks once a second for an
# event of this VM, prepares, approves, and says when it is over. It ends after one event.
set -euo pipefail

here=http://169.254.169.254/metadata
events="$here/scheduledevents?api-version=2020-07-01"

# An answer that is slow, empty or no JSON is no answer: it asks again a second later.
ask() { curl -sSf --max-time 10 --noproxy '*' -H Metadata:true "$@"; }
look() { ask "$events" | jq -e . 2>/dev/null || echo '{"Events":[]}'; }
mine() { jq -c --arg vm "$vm" '[.Events[] | select(.Resources | index($vm))][0] // empty'; }

vm=$(ask "$here/instance/compute/name?api-version=2021-02-01&format=text")
echo "$vm listens"
until event=$(look | mine) && [ -n "$event" ]; do sleep 1; done

id=$(jq -r .EventId <<<"$event")
jq -r '"\(.EventType) is \(.EventStatus), not before \(.NotBefore)"' <<<"$event"

echo "preparing: stop taking work, save what must not be lost"

if [ "$(jq -r .EventStatus <<<"$event")" = Scheduled ]; then
    ask "$events" -d "{\"StartRequests\":[{\"EventId\":\"$id\"}]}"
    echo "approved"
fi
while look | jq -e --arg id "$id" '.Events[] | select(.EventId == $id)' >/dev/null; do sleep 1; done
echo "over: take work again"
