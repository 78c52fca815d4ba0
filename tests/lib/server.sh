# shellcheck shell=sh
# A gpt-generate that serves, for scripts that have sourced tap.sh.
#
#   serve --load ckpt OPTION...    $pid and $url; false where the build cannot
#   ask PATH BODY CURL_OPTION...   the answer in out, its status in $status
#   answers WHAT STATUS PATH BODY CURL_OPTION...    as a check
#   stop_server                    its exit status in $got
serve() {
    rm -f log
    : >log
    gpt-generate --threads 1 --serve 127.0.0.1:0 "$@" 2>>log &
    pid=$!
    tries=0
    while ! grep -q 'http://' log && [ $tries -lt 300 ] &&
        kill -0 $pid 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
    done
    url=$(sed -n 's/.* at \(http.*\)\/$/\1/p' log)
    ! grep -q 'no libmicrohttpd' log
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
