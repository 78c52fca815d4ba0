#!/bin/sh
# What all programs do in the same way: help, version, wrong options,
# configuration, a standard output that is full.
. "$(dirname "$0")/../lib/tap.sh"

same_config() { # program: its printed configuration, fed back, is the same
    "$1" --print-config >c1 && "$1" --config ./c1 --print-config >c2 &&
        sed 's/  # [a-z ]*$//' c1 >n1 && sed 's/  # [a-z ]*$//' c2 >n2 &&
        [ -s n1 ] && cmp n1 n2
}

narrow() { # file: at most 80 columns
    ! LC_ALL=C.UTF-8 grep -nE '.{81}' "$1"
}

nothing_given() { # program: runs as without the file, up to its first error
    "$1" --config ./c1 >/dev/null 2>with
    status=$?
    "$1" >/dev/null 2>without
    [ $status = $? ] && cmp with without
}

# Prints the options of a --help page whose value is a number or a choice.
strict_options() { # page
    sed -nE 's/^ *(-[a-zA-Z], )?(--[a-z0-9-]*) ([A-Z]+)( .*)?$/\3 \2/p' "$1" |
        sed -E '/^(FILE|DIR|PATH|PREFIX|NAME|HOST|ACTION|TEXT|COMMAND|JSON) /d
            s/.* //'
}
# Each of them refuses a value of another kind, and the message shows the value.
refuses_nonsense() { # program page
    strict_options "$2" >strict
    while read -r option; do
        "$1" "$option=@bad@" >/dev/null 2>said </dev/null
        if [ $? != 2 ] || ! grep -q "'@bad@'" said; then
            echo "$option takes it"
            cat said
            return 1
        fi
    done <strict
    [ "$(wc -l <strict)" -gt 1 ]
}

json_only() { # each line of err is an object of a message
    [ -s err ] && ! grep -v '^{"t":[0-9.]*,"level":"error",.*}$' err
}

version=$(sed -n 's/^VERSION = //p' "$top/Makefile")
for source in "$top"/cmd/*/main.c; do
    p=gpt-$(basename "${source%/main.c}")

    expect 0 "$p --help" "$p" --help
    check "$p --help is at most 80 columns wide" narrow out
    check "$p --help says nothing on stderr" test ! -s err
    check "$p --help ends with the page" test "$(tail -n 1 out)" = "See $p(1)."
    cp out long
    expect 0 "$p -h" "$p" -h
    check "$p -h is the same" cmp out long
    expect 0 "$p --version" "$p" --version
    check "$p --version opens with name and number" \
        test "$(head -n 1 out)" = "$p $version"

    expect 2 "$p refuses an unknown option" "$p" --thread 1
    err_has "unknown option '--thread'"
    err_has 'did you mean --threads?'
    expect 2 "$p refuses a number out of range" "$p" --threads 5000
    err_has '--threads: 5000 is out of range (0 to 4096)'
    expect 2 "$p refuses a word that is no number" "$p" --threads=two
    expect 2 "$p refuses a wrong choice" "$p" --color=sometimes
    err_has 'auto, always, never'
    check "$p refuses nonsense in every option" refuses_nonsense "$p" long
    expect 2 "$p refuses a missing value" "$p" --threads
    expect 2 "$p refuses an unknown shell" "$p" --complete=csh

    check "$p --print-config can be fed back" same_config "$p"
    check "$p takes a file of defaults as nothing given" \
        nothing_given "$p"
    echo 'thread = 1' >bad.conf
    expect 2 "$p refuses an unknown name in a file" "$p" --config ./bad.conf
    err_has 'bad.conf:1: unknown option'
    expect 4 "$p misses a configuration file" "$p" --config ./missing.conf
    for variable in GPT_LOG GPT_CPU_MATMUL GPT_CUDA_FLASH GPT_CUDA_SYNC \
        GPT_CUDA_TUNE; do
        expect 2 "$p refuses a wrong $variable" \
            env "$variable=loud" "$p" --print-config
        err_has "$variable: 'loud' is not "
        expect 0 "$p takes an empty one as unset" \
            env "$variable=" "$p" --print-config
    done
    expect 2 "$p refuses a wrong GPT_THREADS" \
        env GPT_THREADS=-1 "$p" --print-config
    err_has 'GPT_THREADS'
    expect 0 "$p reads GPT_CONFIG" env GPT_CONFIG=./c1 "$p" --print-config
    expect 2 "$p takes standard input once" \
        env GPT_CONFIG=- "$p" --config - --print-config
    err_has 'GPT_CONFIG and --config both read standard input'
    expect 4 "$p finds no such file" env GPT_CONFIG=none.conf "$p"
    err_has 'GPT_CONFIG names it'
    expect 2 "$p refuses a wrong GPT_CPU_ISA" \
        env GPT_CPU_ISA=avx9 "$p" --print-config
    err_has "GPT_CPU_ISA: 'avx9' is not base, avx2,"
    expect 0 "$p takes an empty one as none" \
        env GPT_CPU_ISA= "$p" --print-config
    expect 0 "$p --version obeys GPT_CPU_ISA" \
        env GPT_CPU_ISA=base "$p" --version
    check "$p --version says the set in use" grep -qx 'processor: base' out

    expect 2 "$p --log-format json is for wrong options, too" \
        "$p" --thread=1 --log-format json
    check 'before it' json_only
    echo 'log-format = json' >json.conf
    expect 2 "$p finds it in a file" env GPT_CONFIG=./json.conf "$p" --thread=1
    check 'of the environment' json_only
    expect 2 "$p takes the last" "$p" --log-format json --config ./json.conf \
        --thread=1 --log-format text
    check 'of the command line' grep -q "^$p: error: unknown option" err

    expect 2 "$p is not quiet and verbose" "$p" -q -v --print-config
    err_has '--quiet excludes --verbose'
    echo 'quiet = true' >quiet.conf
    expect 0 "$p takes the one that is typed" "$p" --config ./quiet.conf -v \
        --print-config
    check 'in place of that of a file' grep -q '^quiet = false' out

    [ -p endless ] || mkfifo endless
    expect 2 "$p does not wait for a configuration after a mistake" \
        sh -c "timeout 60 $p --thread=1 --config - <>endless"
    expect 0 "$p starts with too many threads" \
        env OMP_NUM_THREADS=4096 "$p" --print-config
    case $p in
    gpt-launch) check 'and starts none' test ! -s err ;;
    *)
        # 8 a core are no reason
        [ "$(nproc)" -ge 512 ] ||
            check 'with a warning' \
                test "$(grep -c '4096 threads on' err)" = 1
        ;;
    esac
    expect 4 "$p sees a full disk behind --help" \
        sh -c "$p --help >/dev/full"
    err_has 'No space left on device'
    expect 4 "$p sees a closed standard output" sh -c "$p --help >&-"
    expect 4 "$p sees a full disk behind --print-config" \
        sh -c "$p --print-config >/dev/full"
done
tap_done
