#!/bin/sh
# make check-gpu: compares, on the GPU of this machine, every kernel with
# kernels/cpu, trainings and generated texts with those of the CPU, and runs the
# kernels again under compute-sanitizer if that is installed. It needs make,
# gcc, nvcc, sh and cJSON, and takes less than 8 minutes. All its files are in
# $BUILD. Ranks that share a GPU need Gloo. carry.sh can copy cJSON and Gloo.
#
#   GPT_CHECK_SECONDS   the most that a run under compute-sanitizer may take
#   GPT_CHECK_BUILT     1: use BUILD without building it
#   GPT_TEST_DEVICE     cuda-emu: rehearse this script without a GPU
set -eu
. tests/gpu/env.sh
begin=$(date +%s)

say() {
    echo "check-gpu: $(($(date +%s) - begin)) s: $*"
}

programs=
for p in preprocess train generate launch; do
    programs="$programs $BUILD/gpt-$p"
done
plugin=$BUILD/libgpt-$GPT_TEST_DEVICE.so
kernels=$BUILD/tests/unit/test_cuda.t
queues=$BUILD/tests/unit/test_queues.t
clique=$BUILD/tests/unit/test_clique.t
comm=$BUILD/tests/unit/test_comm.t
recording=$BUILD/tests/unit/test_recording.t
eight=$BUILD/tests/unit/test_fp8.t
# shellcheck disable=SC2086 # a word list
[ "${GPT_CHECK_BUILT:-0}" = 1 ] ||
    sh tests/gpu/build.sh $programs "$plugin" "$kernels" "$queues" "$clique" \
        "$comm" "$recording" "$eight"
"$BUILD/gpt-train" --version
say "built"

# Runs a test; its TAP goes to a file, and lines other than 'ok' are shown.
# After a failure the next tests still run, and after one that hangs, too.
failed=0
run() { # what file command...
    what=$1 tap=$BUILD/$2.tap
    shift 2
    status=0
    timeout 540 "$@" >"$tap" 2>&1 || status=$?
    grep -v '^ok [0-9]* - ' "$tap" || :
    if [ $status = 0 ]; then
        say "$what"
    else
        failed=1
        say "FAILED: $what; see $tap"
    fi
}

[ "$GPT_TEST_DEVICE" != cuda ] || export GPT_TEST_SWEEP="${GPT_TEST_SWEEP:-10}"
run 'every kernel agrees with kernels/cpu' kernels "$kernels"
grep -q 'ok 2 ' "$BUILD/kernels.tap" || {
    say "no GPU answers here; nothing was checked"
    exit 1
}
run 'products of eight bits are those of doubles' eight "$eight"
run 'queues wait for each other' queues "$queues"
run 'recorded operations run again' recording "$recording"
run 'a group of one rank has its collectives' clique "$clique"
run 'groups of ranks have theirs, where there are four GPUs' comm "$comm"
run 'trainings and generation agree with the CPU' programs \
    sh tests/cli/t25-cuda-emu.sh

# ---- compute-sanitizer ----

if [ "$GPT_TEST_DEVICE" != cuda ] ||
    ! command -v compute-sanitizer >/dev/null; then
    say "compute-sanitizer: not run, it is not installed"
    exit $failed
fi

sections=$("$kernels" --list | grep -v 'sweep\|ptx\|pieces')
limit=${GPT_CHECK_SECONDS:-100}

# Runs one section of the kernels' test; the result is a file of one line.
sanitize() { # tool section
    log=$BUILD/$1-$2.log
    status=0
    timeout "$limit" compute-sanitizer --tool "$1" --error-exitcode 9 \
        --report-api-errors no "$kernels" "$2" >"$log" 2>&1 || status=$?
    case $status in
    0) echo clean ;;
    124) echo "not finished in $limit s" ;;
    *)
        if grep -qi 'device not supported' "$log"; then
            echo "not run: it does not support this device"
        else
            echo "FAILED: see $log"
        fi
        ;;
    esac >"$log.result"
}

tools='memcheck racecheck synccheck'
for tool in $tools; do
    for s in $sections; do
        sanitize "$tool" "$s" &
    done
done
wait
unfinished=0
for tool in $tools; do
    for s in $sections; do
        log=$BUILD/$tool-$s.log
        say "$tool, $s: $(cat "$log.result")"
        ! grep -q 'not finished' "$log.result" ||
            unfinished=$((unfinished + 1))
        grep -q FAILED "$log.result" || continue
        failed=1
        grep '^=====' "$log" | head -n 20
    done
done
[ $unfinished = 0 ] ||
    say "$unfinished were not finished: GPT_CHECK_SECONDS gives them more time"
exit $failed
