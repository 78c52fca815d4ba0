# shellcheck shell=sh
# A gpt-generate that serves, for scripts that have sourced tap.sh.
#
#   serve --load ckpt OPTION...    $pid and $url; false where the build cannot
#   ask PATH BODY CURL_OPTION...   the answer in out, its status in $status
#   answers WHAT STATUS PATH BODY CURL_OPTION...    as a check
#   is_idle                        no request runs or waits
#   stop_server                    its exit status in $got
listens_or_ended() { grep -q 'http://' log || has_ended $pid; }
serve() {
    rm -f log
    : >log
    gpt-generate --threads 1 --serve 127.0.0.1:0 "$@" 2>>log &
    pid=$!
    until_true 60 listens_or_ended
    url=$(sed -n 's/.* at \(http.*\)\/$/\1/p' log)
    ! grep -q 'no libmicrohttpd' log
}
is_idle() {
    ask /metrics '' && grep -q '^gpt_requests_running 0$' out &&
        grep -q '^gpt_requests_waiting 0$' out
}
ask() {
    path=$1
    body=$2
    shift 2
    status=$(curl -s -m 60 -o out -w '%{http_code}' "$@" ${body:+-d "$body"} \
        "$url$path")
}
answers() {
    what=$1
    want=$2
    shift 2
    ask "$@"
    check "$what" test "$status" = "$want" || sed 's/^/# /' out
}
stop_server() {
    kill -TERM $pid
    wait $pid
    got=$?
}
