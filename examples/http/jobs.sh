#!/bin/sh
# Put, delete and work through jobs over HTTP. Needs curl 7.71 or later, and jq.
#
#   sh jobs.sh put TOPIC DELAY BODY ID
#   sh jobs.sh delete ID
#   sh jobs.sh work TOPIC [COUNT]

set -eu

gateway=${RABBITDELAY_GATEWAY:-http://localhost:8437}
wait=${RABBITDELAY_WAIT:-20}
give_up_seconds=60

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
trap 'exit 143' INT TERM
answer=$files/answer

# In a file, because every user of the machine can read the arguments of curl.
{
    echo "Content-Type: application/json"
    [ -z "${RABBITDELAY_TOKEN:-}" ] || echo "Authorization: Bearer $RABBITDELAY_TOKEN"
} >"$files/headers"

# Send stdin as a request; print the status, and store the answer. curl repeats the request while
# the gateway or its broker is away, and waits as long as a 503 asks in its header Retry-After.
call() {
    curl --no-progress-meter --request "$1" "$gateway$2" --header "@$files/headers" \
        --data-binary @- --output "$answer" --write-out '%{http_code}' \
        --max-time $((${wait%.*} + 10)) \
        --retry 30 --retry-max-time $give_up_seconds --retry-all-errors
}

# End unless a status means success.
require_success() {
    [ "$1" -lt 300 ] && return
    echo "$1: $(jq -r .detail "$answer")" >&2
    exit 1
}

path_of() {
    jq -rn --arg id "$1" '"/v1/jobs/" + ($id | @uri)'
}

# Put a job. A repeated request replaces the job that the first one put, so it is never put twice.
put() {
    status=202 # whether the job was put is not known
    while [ "$status" = 202 ]; do
        status=$(jq -n --arg topic "$1" --arg delay "$2" --argjson body "$3" '$ARGS.named' |
            call PUT "$(path_of "$4")")
    done
    require_success "$status"
}

delete() {
    require_success "$(call DELETE "$(path_of "$1")" </dev/null)"
}

# Handle jobs of a topic, one after the other.
work() {
    left=$2
    while [ "$left" != 0 ]; do
        status=$(jq -n --arg topics "$1" --argjson wait "$wait" '$ARGS.named' | call POST /v1/pop)
        if [ "$status" = 204 ]; then
            echo "no job came" >&2
            continue
        fi
        require_success "$status"
        settle "$(jq -c '.jobs[0]' "$answer")"
        left=$((left - 1))
    done
}

# Handle a job, then finish it, or release it for another attempt if the handler fails.
settle() {
    id=$(printf '%s' "$1" | jq -r .id)
    if printf '%s' "$1" | handle; then verb=finish; else verb=release; fi
    status=$(printf '%s' "$1" | jq '{lease}' | call POST /v1/$verb)
    if [ "$status" = 409 ]; then # its ttr is over: another consumer has it, or will get it
        echo "job $id: lease lost" >&2
        return
    fi
    require_success "$status"
}

# A job may come twice. What happens here must have the same effect then: the id tells.
handle() {
    jq -er '.id as $id | .attempt as $n | .body.order // empty |
        "\($id): close order \(.) (attempt \($n))"' || {
        echo "the body has no order" >&2
        return 1
    }
}

case ${1:-} in
put) put "$2" "$3" "$4" "$5" ;;
delete) delete "$2" ;;
work) work "$2" "${3:--1}" ;;
*) echo "usage: sh jobs.sh put|delete|work …" >&2 && exit 2 ;;
esac
