#!/bin/sh
# Every operation of the REST API once, with curl. The README says what has to run.
set -eu

server=${SERVER:-http://localhost:8080}
namespace=${NAMESPACE:-default}
run=${RUN:-walk-$(date +%s)-$$}

# call METHOD PATH [JSON]: prints the status and the answer, and keeps the answer in $answer.
call() {
  # A parameter for all: whose jobs these are. Without it, those of the token's own namespace.
  case $2 in *\?*) address="$server$2&namespace=$namespace" ;; *) address="$server$2?namespace=$namespace" ;; esac
  echo "\$ curl -X $1 '$server$2'${3:+ -H 'Content-Type: application/json' -d '$3'}"
  answer=$(curl -sS -X "$1" "$address" ${3:+-H 'Content-Type: application/json' -d "$3"} \
    ${TOKEN:+-H "Authorization: Bearer $TOKEN"} -w '\n%{http_code}')
  status=${answer##*
}
  answer=${answer%
*}
  printf '%s %s\n\n' "$status" "$answer"
}

# expect STATUS TEXT...: ends the walk if the last answer is another one.
expect() {
  [ "$status" = "$1" ] || { echo "expected status $1" >&2; exit 1; }
  shift
  for text; do
    case $answer in *"$text"*) ;; *) echo "expected $text" >&2; exit 1 ;; esac
  done
}

# field NAME: the first value of that name in the last answer.
field() {
  printf '%s' "$answer" | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" | head -n 1
}

# until_state ID STATE: looks at a job until it is there.
until_state() {
  echo "# until $1 is $2"
  for _ in $(seq 1 300); do
    state=$(curl -sS "$server/v1/jobs/$1?namespace=$namespace" ${TOKEN:+-H "Authorization: Bearer $TOKEN"})
    case $state in *"\"state\":\"$2\""*) return ;; esac
    sleep 0.1
  done
  echo "still not $2: $state" >&2
  exit 1
}

echo "# Submit a job. The key makes it safe to send again: the job is stored once."
order='{"type": "invoice", "payload": {"number": 7, "cents": 1250}, "callback_url": "https://receiver.example/jobs", "tags": {"run": "'$run'"}, "idempotency_key": "'$run'-7"}'
call POST /v1/jobs "$order"
expect 201 '"status":"ACCEPTED"'
invoice=$(field job_id)
call POST /v1/jobs "$order"
expect 200 '"status":"DUPLICATE"' "\"existing_job_id\":\"$invoice\""

echo "# Submit several, all or none: one that fails, one for later, one that waits for it."
call POST /v1/jobs/batch '{"atomic": true, "jobs": [
  {"job_id": "'$run'-charge", "type": "charge", "payload": {"number": 8, "cents": 99}, "tags": {"run": "'$run'"}},
  {"job_id": "'$run'-later", "type": "invoice", "payload": {"number": 9, "cents": 1}, "delay": "PT1H", "tags": {"run": "'$run'"}},
  {"job_id": "'$run'-after", "type": "invoice", "payload": {"number": 10, "cents": 2}, "depends_on": ["'$run'-later"], "tags": {"run": "'$run'"}}]}'
expect 201 '"accepted":3'

echo "# Watch: result and history of one job."
until_state "$invoice" COMPLETED
call GET "/v1/jobs/$invoice?include_result=true&include_history=true"
expect 200 '"text":"Invoice 7: 12.50"' '"to_state":"COMPLETED"'

echo "# Follow: a stream of events says how a job is, and all that happens until it has ended; one of a filter goes on and on."
call GET "/v1/jobs/$invoice/events"
expect 200 'event: job' '"status":"COMPLETED"' 'event: end'
echo "\$ curl -X GET '$server/v1/events?type=invoice' --max-time 1"
curl -sS --max-time 1 "$server/v1/events?type=invoice&namespace=$namespace" ${TOKEN:+-H "Authorization: Bearer $TOKEN"} 2>/dev/null || true

echo "# Why does a job not run?"
call GET "/v1/jobs/$run-later/why"
expect 200 '"reason":"DELAYED"'
call GET "/v1/jobs/$run-after/why"
expect 200 '"reason":"DEPENDENCIES"' "\"job_id\":\"$run-later\""

echo "# Find jobs: in the address, or as a document. next_cursor leads to the next page."
call GET "/v1/jobs?tag=run=$run&state=PENDING&state=DELAYED&limit=1&order=CREATED_ASC"
expect 200 '"total_count":2' '"has_more":true'
cursor=$(field next_cursor)
call POST /v1/jobs/search '{"tags": {"run": "'$run'"}, "states": ["PENDING", "DELAYED"], "limit": 1, "order": "CREATED_ASC", "cursor": "'$cursor'"}'
expect 200 "\"job_id\":\"$run-after\"" '"has_more":false'

echo "# What failed, and why?"
until_state "$run-charge" FAILED
call GET "/v1/jobs/$run-charge/failure?include_all_attempts=true"
expect 200 '"code":"DECLINED"' '"final_state":"FAILED"'
call POST /v1/failures/search '{"types": ["charge"], "error_code": "DECLINED", "pagination": {"limit": 5}}'
expect 200 '"by_code":{"DECLINED":'

echo "# Pause a type: nothing of it starts until it is resumed."
call PUT /v1/pauses '{"type": "charge", "reason": "the bank is closed"}'
expect 200 '"type":"charge"'
call GET /v1/pauses
expect 200 '"reason":"the bank is closed"'
# Every replica knows within a quarter of a second.
sleep 0.3

echo "# Suspend a single job: no attempt of it begins until it is resumed, and it keeps its place."
call POST "/v1/jobs/$run-later/suspend"
expect 200 '"suspended":true'
call GET "/v1/jobs/$run-later/why"
expect 200 '"reason":"SUSPENDED"'
call POST "/v1/jobs/$run-later/resume"
expect 200 '"suspended":false'

echo "# Try the failed job again; it waits for the pause to end. Then all failed ones, as a rehearsal."
call POST "/v1/jobs/$run-charge/retry" '{"reset_attempts": true, "priority": "HIGH"}'
expect 200 '"status":"QUEUED"'
call GET "/v1/jobs/$run-charge/why"
expect 200 '"reason":"PAUSED"'
call DELETE "/v1/pauses?type=charge"
expect 200 '"resumed":true'
until_state "$run-charge" FAILED
call POST /v1/jobs/retry '{"filter": {"types": ["charge"], "error_code": "DECLINED"}, "dry_run": true}'
expect 200 '"dry_run":true'

echo "# What did a job log? By attempt, the newest lines."
call GET "/v1/jobs/$invoice/logs?lines=10"
expect 200 '"message":"writing an invoice"' '"fields":{"number":7}'

echo "# Who is told that it has ended, and how does that go? Nobody answers there, so it is tried again for a day."
call GET "/v1/webhooks?job_id=$invoice"
expect 200 "\"job_id\":\"$invoice\"" '"job_state":"COMPLETED"'
message=$(field id)
call GET "/v1/webhooks/$message"
expect 200 '"url":"https://receiver.example/jobs"'
call POST /v1/webhooks/redeliver '{"state": "FAILED", "dry_run": true}'
expect 200 '"dry_run":true'
call POST /v1/webhooks/purge '{"ids": ["'$message'"]}'
expect 200 '"purged":1'

echo "# Cancel: a running job is asked to stop, a waiting one does not run."
call POST /v1/jobs '{"job_id": "'$run'-report", "type": "report", "payload": {"number": 11, "cents": 0}, "tags": {"run": "'$run'"}}'
expect 201 '"status":"ACCEPTED"'
until_state "$run-report" RUNNING
call POST "/v1/jobs/$run-report/cancel" '{"reason": "not needed any more", "force": false}'
expect 200 '"status":"CANCEL_REQUESTED"'
until_state "$run-report" CANCELLED
call POST /v1/jobs/cancel '{"filter": {"tags": {"run": "'$run'"}}, "reason": "the walk is over", "dry_run": true}'
expect 200 '"cancelled":2' '"dry_run":true'
call POST /v1/jobs/cancel '{"filter": {"tags": {"run": "'$run'"}}, "reason": "the walk is over"}'
expect 200 '"cancelled":2' '"failed":0'

echo "# How does the queue do? Counts, rates and latencies of the last five minutes."
call GET "/v1/stats?breakdown_by=TYPE&time_range=PT5M"
expect 200 '"submission_rate":' '"by_type":'

echo "# The same in a sentence, with what to do next; who works, what waits, what fails, and when that was."
call GET /v1/verdict
expect 200 '"sentence":' '"causes":'
call GET /v1/workers
expect 200 '"capacity":'
call GET "/v1/waiting?limit=5"
expect 200 '"waiting":'
call GET "/v1/failures/clusters?type=charge"
expect 200 '"type":"charge"' '"code":"DECLINED"'
call GET "/v1/stats/series?time_range=PT10M"
expect 200 '"step":"PT1M"'
call GET /v1/access
expect 200 '"list":true'

echo "# Delete what has ended: one job, then all of this walk."
call DELETE "/v1/jobs/$invoice"
expect 204
call GET "/v1/jobs/$invoice"
expect 404 '"code":"NOT_FOUND"'
call POST /v1/jobs/delete '{"filter": {"tags": {"run": "'$run'"}}}'
expect 200 '"deleted":4'

echo "# Every shape, for tools and for people."
curl -sS -o /dev/null -w 'openapi.json %{http_code}\n' "$server/v1/openapi.json"
curl -sS -o /dev/null -w 'docs %{http_code}\n' "$server/v1/docs"

echo "# That was all."
