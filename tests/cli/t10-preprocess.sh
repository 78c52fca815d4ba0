#!/bin/sh
# gpt-preprocess: its output, which does not depend on the number of workers,
# and its messages about bad input.
# shellcheck disable=SC2154 # $top and $scratch are tap.sh's
. "$(dirname "$0")/../lib/tap.sh"

vocab="--vocab-file $top/tests/golden/gpt2/vocab.json"
vocab="$vocab --merge-file $top/tests/golden/gpt2/merges.txt"
# However slow the machine is, no run gets so far that it can be resumed: what
# fails then leaves nothing.
# shellcheck disable=SC2086 # word lists
pp() { # input prefix options...
    pp_in=$1
    pp_out=$2
    shift 2
    gpt-preprocess --input "$pp_in" --output-prefix "$pp_out" $vocab \
        --resume-interval 1000 "$@"
}
nothing_left() { # prefix: no file of that name, no temporary file
    check "nothing is left of $1" sh -c "! ls -A | grep '$1'"
}

# ---- what it writes ----

cat >small.jsonl <<'EOF'
{"text": "abc", "id": 1}
{"text": ""}
{"text": ["ab", "", "c"], "title": "x"}
{"text": []}
{"text": "caf\u00e9 \ud83d\ude00"}
EOF
expect 0 'bytes of five documents' gpt-preprocess --input small.jsonl \
    --output-prefix b --tokenizer-type ByteTokenizer --append-eod
check '.bin and .idx' ls b_text_document.bin b_text_document.idx
hex() { od -An -v -tx1 "$1" | tr -d ' \n'; }
bin=6100620063000001                    # abc, end
bin=${bin}6100620063000001              # ab, c, end
bin=${bin}63006100660
bin=${bin}0c300a90020                   # caf, e with an acute accent, space
bin=${bin}00f0009f00980080000001        # a smiling face, end
check 'tokens and document ends' [ "$(hex b_text_document.bin)" = "$bin" ]
idx=4d4d494449445800000100000000000000  # magic, version
idx=${idx}0804000000000000000600000000000000 # uint16, 4 sequences, 5 + 1
idx=${idx}0400000002000000020000000b000000   # lengths
idx=${idx}000000000000000008000000000000000c000000000000001000000000000000
idx=${idx}000000000000000001000000000000000100000000000000 # documents
idx=${idx}030000000000000003000000000000000400000000000000
check 'index: 4 sequences, 5 documents' \
    [ "$(hex b_text_document.idx)" = "$idx" ]
expect 0 'the line of the manual' gpt-preprocess --input small.jsonl \
    --output-prefix my --vocab-file "$top/tests/golden/gpt2/vocab.json" \
    --dataset-impl mmap --tokenizer-type GPT2BPETokenizer \
    --merge-file "$top/tests/golden/gpt2/merges.txt" --append-eod
err_has '5 documents'
check 'says nothing on stdout' [ ! -s "$scratch/out" ]

# ---- the same for any number of workers, chunks, files and compression ----

awk 'BEGIN { srand(1); for (i = 0; i < 60000; i++) {
    printf "{\"id\":%d,\"text\":\"", i
    n = int(rand() * 12)
    for (k = 0; k < n; k++) printf "word%d it'\''s %c\\n ", rand() * 999, 97 + k
    print "\"}" } }' >big.jsonl
expect 0 'one worker' pp big.jsonl w1 --workers 1 --append-eod
for n in 2 7; do
    expect 0 "$n workers" pp big.jsonl "w$n" --workers $n --append-eod
    check 'same tokens' cmp w1_text_document.bin w${n}_text_document.bin
    check 'same index' cmp w1_text_document.idx w${n}_text_document.idx
done
expect 0 'from standard input' sh -c "cat big.jsonl | gpt-preprocess --input - \
    --output-prefix pipe $vocab --append-eod"
check 'same tokens' cmp w1_text_document.bin pipe_text_document.bin
split -l 25000 big.jsonl part.
expect 0 'from three files' gpt-preprocess --input part.aa part.ab part.ac \
    --output-prefix three --append-eod $vocab
check 'same tokens' cmp w1_text_document.bin three_text_document.bin
check 'same index' cmp w1_text_document.idx three_text_document.idx
# xz, gzip and zstd: several streams, members or frames; truncated, damaged, followed by
# other bytes.
compressed() { # name packed-file piece-word
    expect 0 "from $1" pp "$2" "$1" --append-eod
    check 'same tokens' cmp w1_text_document.bin "${1}_text_document.bin"
    check 'same index' cmp w1_text_document.idx "${1}_text_document.idx"
    expect 0 "from a pipe of $1" sh -c "cat $2 | gpt-preprocess --input - \
        --output-prefix $1.pipe --append-eod $vocab"
    check 'same tokens' cmp w1_text_document.bin "$1.pipe_text_document.bin"
    head -c 60000 "$2" >"cut.$1"
    expect 3 "refuses half of $1" pp "cut.$1" cut
    err_has "cut.$1: $1 data truncated: the file ends at offset 60000, inside a $3"
    nothing_left cut_
    { head -c 30000 "$2"
      printf 'XXXXXXXX'
      tail -c +30009 "$2"; } >"bent.$1"
    expect 3 "refuses damaged $1" pp "bent.$1" bent
    err_has "bent.$1:"
    nothing_left bent_
    for text in no 'hello, this is not packed'; do
        { cat "$2"
          echo "$text"; } >"more.$1"
        expect 3 "refuses what follows $1" pp "more.$1" more
        err_has "more.$1: something else follows the $1 data near offset"
        nothing_left more_
    done
}
without() { # name packed-file library
    expect 3 "built without $3" pp "$2" m
    err_has "$2: compressed with $1, and this program was built without $3"
    nothing_left m_
}
has() { gpt-preprocess --version | grep -q "$1"; }
if command -v xz >/dev/null && has lzma; then
    { xz -0 -c --block-size=400000 part.aa
      head -c 8 /dev/zero
      xz -0 -c part.ab part.ac; } >big.xz
    compressed xz big.xz stream
    for bytes in 1 4098; do
        { xz -c part.aa
          head -c $bytes /dev/zero; } >zeros.xz
        expect 3 "refuses $bytes zeros after xz" pp zeros.xz zeros
        err_has 'zeros.xz: xz data damaged near offset'
    done
else
    skip 'no xz, or built without liblzma'
fi
golden=$top/tests/golden/input
if has zlib; then
    { gzip -1 -c part.aa
      gzip -9 -c part.ab
      : | gzip
      gzip -1 -c part.ac
      head -c 700 /dev/zero; } >big.gz
    compressed gzip big.gz member
    head -c 3000 big.jsonl | gzip >crc.gz
    n=$(wc -c <crc.gz)
    { head -c $((n - 8)) crc.gz
      printf 'abcd'
      tail -c 4 crc.gz; } >crc2.gz
    expect 3 'a check sum that is wrong' pp crc2.gz crc
    err_has 'crc2.gz: gzip data damaged near offset'
    head -c 5 crc.gz >head.gz
    expect 3 'half a header' pp head.gz crc
    err_has 'the file ends at offset 5, inside a member'
    nothing_left crc_
else
    gzip -c small.jsonl >small.gz
    without gzip small.gz zlib
fi
if has zstd; then
    # made by Debian's zstd 1.5.4: a skippable frame as pzstd writes, two frames
    expect 0 'zstd frames, one skippable' gpt-preprocess --append-eod \
        --input "$golden/small.zst" --output-prefix gold \
        --tokenizer-type ByteTokenizer
    check 'same tokens' cmp b_text_document.bin gold_text_document.bin
    check 'same index' cmp b_text_document.idx gold_text_document.idx
    head -c 120 "$golden/small.zst" >cut.zst
    expect 3 'refuses half of it' pp cut.zst cut
    err_has 'zstd data truncated: the file ends at offset 120, inside a frame'
    printf '\050\265\057\375\000\250\001\000\000' >wide.zst # 2 GiB
    expect 3 'a window that is too large' pp wide.zst cut
    err_has 'wide.zst: zstd frame near offset'
    err_has 'needs a larger window than the limit of 128 MiB'
    nothing_left cut_
    if command -v zstd >/dev/null; then
        { printf '\137\052\115\030\003\000\000\000abc' # to be skipped
          zstd -1 -c part.aa
          zstd -9 -c part.ab
          : | zstd -c
          zstd -1 -c part.ac; } >big.zst 2>/dev/null
        compressed zstd big.zst frame
    else
        skip 'no zstd program'
    fi
else
    without zstd "$golden/small.zst" libzstd
fi
foreign() { # format first-bytes
    # shellcheck disable=SC2059 # the bytes are octal
    printf "$2" >a.packed
    expect 3 "$1" pp a.packed m
    err_has "compressed with $1, which this program cannot read"
    nothing_left m_
}
foreign bzip2 'BZh91AY&SY'
foreign lz4 '\004\042\115\030\144\100\247'
foreign lzma '\135\000\000\200\000\377\377'

# ---- long lines, and ends of files without a newline ----

head -c 5000000 /dev/zero | tr '\0' 'a' >letters
{ printf '{"text":"'
  cat letters
  printf '"}\n{"text":"b"}\n'; } >long.jsonl
expect 0 'a line of 5 MB' gpt-preprocess --input long.jsonl \
    --output-prefix long --tokenizer-type ByteTokenizer
check 'all of it' [ "$(wc -c <long_text_document.bin)" = 10000002 ]
expect 0 'one piece of 5 MB' pp long.jsonl longbpe
printf '{"text":"a"}\r\n{"text":"b"}' >ends.jsonl
expect 0 'CRLF, no last newline' gpt-preprocess --input ends.jsonl \
    --output-prefix ends --tokenizer-type ByteTokenizer
check 'two letters' [ "$(hex ends_text_document.bin)" = 61006200 ]
: >empty.jsonl
expect 0 'an empty file' pp empty.jsonl empty
err_has 'no documents'

# ---- several keys ----

printf '{"a":"1","b":"22"}\n{"b":"4","a":"3"}\n' >keys.jsonl
expect 0 'two keys' gpt-preprocess --input keys.jsonl --output-prefix k \
    --json-keys a b --tokenizer-type ByteTokenizer
check 'first' [ "$(hex k_a_document.bin)" = 31003300 ]
check 'second' [ "$(hex k_b_document.bin)" = 320032003400 ]
expect 2 'a key twice' gpt-preprocess --input keys.jsonl --output-prefix kk \
    --json-keys a a --tokenizer-type ByteTokenizer
nothing_left kk_

# ---- bad lines: status 3, a message with file:line, no output ----

bad_line() { # message line-as-printf-format
    { head -n 40000 big.jsonl
      # shellcheck disable=SC2059 # the format is the test
      printf "$2"
      tail -n 1000 big.jsonl; } >bad.jsonl
    expect 3 "refuses: $1" pp bad.jsonl bad --workers 3
    err_has "bad.jsonl:40001: $1"
    nothing_left bad_
}
bad_line 'truncated' '{"text":"abc\n'
bad_line 'not JSON' 'hello\n'
bad_line 'not JSON' '{"text":"abc"}{"text":"d"}\n'
bad_line 'not JSON: byte order mark' '\357\273\277{"text":"abc"}\n'
bad_line 'blank line' '\n'
bad_line "no field 'text'" '{"txt":"abc"}\n'
bad_line "field 'text' holds null, not a string" '{"text":null}\n'
bad_line "field 'text' holds a number, not a string" '{"text":[1]}\n'
bad_line 'invalid UTF-8: 0xe9' '{"text":"caf\351"}\n'
bad_line 'raw control character 0x09' '{"text":"a\tb"}\n'
bad_line 'NUL byte' '{"text":"a\000b"}\n'
printf '{"text":"a"}\n{"text":"b"' >cut.jsonl
expect 3 'refuses a cut last line' pp cut.jsonl cut
err_has 'cut.jsonl:2: truncated'
expect 3 'names the second file' gpt-preprocess --input big.jsonl cut.jsonl \
    --output-prefix cut $vocab
err_has 'cut.jsonl:2: truncated'
head -c 3000000 /dev/zero >zero.jsonl
expect 3 'refuses zeros' pp zero.jsonl zero
err_has 'zero.jsonl:1: NUL byte at byte 1'

# ---- bad lines skipped: the output is that of the good lines ----

bad_kinds() { # every kind, the long one longer than a chunk
    printf '{"text":"abc\n'
    printf 'hello\n{"text":"abc"}{"text":"d"}\n'
    tr 'a' 'x' <letters
    printf '\n\n \r\n'
    printf '{"txt":"abc"}\n'
    printf '{"text":null}\n{"text":["x",1]}\n'
    printf '{"text":"caf\351"}\n'
    printf '{"text":"a\tb"}\n'
    printf '{"text":"a\000b"}\n'
}
head -n 25000 big.jsonl >mixed.jsonl
bad_kinds >kinds.bad
cat kinds.bad >>mixed.jsonl
tail -n +25001 big.jsonl >>mixed.jsonl
printf '{"text":"cut' >>mixed.jsonl
{ cat kinds.bad
  printf '{"text":"cut\n'; } >want.bad
for n in 1 2 7; do
    expect 0 "quarantine, $n workers" pp mixed.jsonl "on$n" --workers $n \
        --append-eod --on-error "quarantine=on$n.bad" --max-errors 13
    mv "$scratch/err" "said.$n"
    check 'tokens of the good lines' cmp w1_text_document.bin \
        "on${n}_text_document.bin"
    check 'index of the good lines' cmp w1_text_document.idx \
        "on${n}_text_document.idx"
    check 'the bad lines as they were' cmp want.bad "on$n.bad"
done
has_line() { check "says '$1'" grep -qF -e "$1" said.1; }
has_line '60000 documents'
has_line 'mixed.jsonl:25001: truncated: ends at byte 12'
has_line "mixed.jsonl:25005: blank line"
check 'names five' [ "$(grep -c 'mixed.jsonl:' said.1)" = 5 ]
has_line '... and 8 more, which --verbose names'
has_line "13 bad lines skipped, limit 13, kept in 'on1.bad': blank line 2, \
not JSON 3, truncated 2, invalid UTF-8 1, raw control character 1, NUL byte 1, \
no field 1, not a string 2"
for n in 2 7; do
    check "$n workers say the same" sh -c "
        grep warning said.1 | sed 's/on1/on/' >want.log
        grep warning said.$n | sed 's/on$n/on/' | cmp want.log -"
done
expect 0 'all are named' pp mixed.jsonl on9 --workers 2 --on-error skip \
    --verbose
check 'the others, too' [ "$(grep -c 'mixed.jsonl:' "$scratch/err")" = 13 ]
err_has 'debug: mixed.jsonl:60013: truncated'
for n in 1 5; do
    expect 3 "over the limit, $n workers" pp mixed.jsonl over --workers $n \
        --on-error quarantine=over_bad --max-errors 12
    err_has 'mixed.jsonl:60013: bad line number 13: --max-errors allows 12'
    err_has '13 bad lines before the failure: blank line 2'
    nothing_left over_
done
expect 3 'no bad line allowed' pp mixed.jsonl over --on-error skip \
    --max-errors 0
err_has 'mixed.jsonl:25001: bad line number 1: --max-errors allows 0'
nothing_left over_
expect 0 'skipped, any number' pp mixed.jsonl skip --append-eod --on-error skip
err_has '13 bad lines skipped, no limit: blank line 2'
check 'same tokens' cmp w1_text_document.bin skip_text_document.bin
expect 0 'lines are counted for each file' gpt-preprocess $vocab \
    --input cut.jsonl cut.jsonl --output-prefix each --on-error skip
err_has 'cut.jsonl:2: truncated'
err_has '2 bad lines skipped, no limit: truncated 2'
check 'named for each' [ "$(grep -c 'cut.jsonl:2:' "$scratch/err")" = 2 ]
printf '{"a":"1","b":"x"}\n{"a":"2"}\n{"b":"y","a":"3"}\n' >keys.jsonl
expect 0 'a key is missing' gpt-preprocess --input keys.jsonl \
    --output-prefix ks --json-keys a b --on-error skip \
    --tokenizer-type ByteTokenizer
check 'first key' [ "$(hex ks_a_document.bin)" = 31003300 ]
check 'second key' [ "$(hex ks_b_document.bin)" = 78007900 ]
expect 0 'nothing is good' pp zero.jsonl zero --on-error quarantine=zero.bad
err_has '1 bad line skipped, no limit'
err_has 'no documents'
check 'all of it in quarantine' [ "$(wc -c <zero.bad)" = 3000001 ]
expect 0 'nothing is bad' pp small.jsonl good --on-error quarantine=good.bad
check 'an empty quarantine' sh -c '[ -f good.bad ] && [ ! -s good.bad ]'
expect 7 'a quarantine that exists' pp small.jsonl good2 \
    --on-error quarantine=good.bad
nothing_left good2_
cp keys.jsonl kept.jsonl
expect 2 'an input as quarantine' gpt-preprocess --input keys.jsonl \
    --output-prefix self --on-error quarantine=./keys.jsonl --force \
    --tokenizer-type ByteTokenizer
err_has 'is the input'
check 'the input is as it was' cmp kept.jsonl keys.jsonl
expect 4 'a folder that is not there' pp small.jsonl self \
    --on-error quarantine=none/bad
for ext in bin idx; do
    expect 2 "the .$ext as quarantine" pp mixed.jsonl self \
        --on-error quarantine=self_text_document.$ext
    err_has 'cannot be both a data set'
done
if [ -w /dev/full ]; then
    expect 4 'a full disk for the quarantine' pp mixed.jsonl self \
        --on-error quarantine=/dev/full
    err_has "'/dev/full': No space left"
else
    skip 'no /dev/full'
fi
expect 4 'a missing file is no bad line' pp missing.jsonl self --on-error skip
expect 2 'another action' pp small.jsonl self --on-error ignore
err_has "'ignore' is none of stop, skip and quarantine=FILE"
expect 2 'a quarantine without a name' pp small.jsonl self \
    --on-error quarantine=
expect 2 'a limit that does nothing' pp small.jsonl self --max-errors 3
err_has '--on-error skip'
if has zlib; then
    { cat cut.jsonl
      echo
      cat big.jsonl; } | gzip -1 | head -c 50000 >cut.gz
    expect 3 'damage of a file is no bad line' pp cut.gz self --on-error skip
    err_has 'cut.gz: gzip data truncated'
    err_has '1 bad line before the failure: truncated 1'
fi
nothing_left self_

# ---- bad files and options ----

expect 4 'a missing file' pp missing.jsonl m
err_has "cannot open 'missing.jsonl'"
nothing_left m_
mkdir folder
expect 3 'an empty folder as input' pp folder m
err_has "directory 'folder' holds no file"
expect 2 'no vocabulary' gpt-preprocess --input small.jsonl --output-prefix m
err_has 'vocab-file'
expect 4 'a missing vocabulary' gpt-preprocess --input small.jsonl \
    --output-prefix m --vocab-file none --merge-file none
sed 's/"he":257/"he":700/' "$top/tests/golden/gpt2/vocab.json" >vocab.json
expect 3 'a vocabulary with a hole' gpt-preprocess --input small.jsonl \
    --output-prefix m --vocab-file vocab.json \
    --merge-file "$top/tests/golden/gpt2/merges.txt"
err_has "token 'he' has id 700; 601 tokens have the ids 0 to 600"
sed 's/<|endoftext|>/<|end|>/' "$top/tests/golden/gpt2/vocab.json" >vocab.json
expect 3 'no end of document to append' gpt-preprocess --append-eod \
    --input small.jsonl --output-prefix m --vocab-file vocab.json \
    --merge-file "$top/tests/golden/gpt2/merges.txt"
err_has 'no end-of-document token, such as <|endoftext|>'
expect 2 'a format that is not written' pp small.jsonl m --dataset-impl tar
err_has tar
expect 2 'too many workers' pp small.jsonl m --workers 100000
expect 2 'an unknown option' pp small.jsonl m --keep-everything
expect 2 'no input' gpt-preprocess --output-prefix m
nothing_left m_

# ---- options of Megatron-LM ----

printf '{"text":"a"}\n{"text":""}\n{"text":["","b"]}\n{"text":[]}\n' >none.jsonl
bytes() { # prefix options...
    bytes_out=$1
    shift
    gpt-preprocess --input none.jsonl --output-prefix "$bytes_out" \
        --tokenizer-type ByteTokenizer "$@"
}
index() { # prefix: lengths and document ends
    hex "$1_text_document.idx" | cut -c 69-
}
expect 0 '--empty keep' bytes keep --append-eod --empty keep
expect 0 'is the default' bytes kept --append-eod
check 'same index' cmp keep_text_document.idx kept_text_document.idx
want=0200000002000000                          # two sequences of two tokens
want=${want}00000000000000000400000000000000   # their places
want=${want}00000000000000000100000000000000   # 0 1 1 2 2
want=${want}010000000000000002000000000000000200000000000000
check 'four documents, two sequences' [ "$(index keep)" = $want ]
expect 0 '--empty drop' bytes drop --append-eod --empty drop
want=0200000002000000000000000000000004000000000000000000000000000000
want=${want}01000000000000000200000000000000
check 'two documents, two sequences' [ "$(index drop)" = $want ]
check 'the same tokens' cmp keep_text_document.bin drop_text_document.bin
expect 0 '--empty eod' bytes eod --append-eod --empty eod
check 'ends of documents alone' [ "$(hex eod_text_document.bin)" = \
    610000010001620000010001 ]
check 'four sequences' gpt-dataset verify eod_text_document --eod 256
expect 2 '--empty eod without --append-eod' bytes m --empty eod
err_has '--empty eod needs --append-eod'
expect 0 '--dtype int32' bytes wide --append-eod --dtype int32
check 'of four bytes' [ "$(hex wide_text_document.bin)" = \
    61000000000100006200000000010000 ]
expect 0 '--dtype uint16' bytes narrow --append-eod --dtype uint16
check 'is what auto takes here' cmp narrow_text_document.bin \
    keep_text_document.bin
for impl in lazy cached; do
    expect 0 "--dataset-impl $impl" bytes $impl --append-eod \
        --dataset-impl $impl
    gpt-dataset convert wide_text_document --to tntidx --output-prefix tnt \
        --force -q
    check 'int32 tokens' cmp tnt.bin ${impl}_text_document.bin
    check 'the index of convert' cmp tnt.idx ${impl}_text_document.idx
done
expect 0 'TNTIDX of many documents' pp big.jsonl t1 --append-eod \
    --dataset-impl lazy --dtype uint16 --workers 3
gpt-dataset convert w1_text_document --to tntidx --output-prefix t2 -q
check 'same index' cmp t2.idx t1_text_document.idx
expect 2 'partitions that change the order' bytes m --partitions 2
err_has 'would change the order of the documents'
expect 0 'partitions that do not' bytes parts --append-eod --partitions 2 \
    --keep-sequential-samples
check 'same index' cmp keep_text_document.idx parts_text_document.idx

# Vocabularies of 65499 and 65500 tokens have different types.
vocabulary() { # tokens: a vocabulary of bytes and words without merges
    sed 's/}[^}]*$//' "$top/tests/golden/gpt2/vocab.json" | tr -d '\n'
    awk -v n="$1" 'BEGIN { for (i = 601; i < n; i++) printf ",\"#%d\":%d", i, i
        print "}" }'
}
for n in 65499 65500 65536 65537; do
    vocabulary $n >big-vocab.json
    expect 0 "$n tokens" gpt-preprocess --input small.jsonl \
        --output-prefix v$n --vocab-file big-vocab.json \
        --merge-file "$top/tests/golden/gpt2/merges.txt"
    size=4
    [ $n = 65499 ] && size=2
    check "are of $size bytes" [ "$(hex v${n}_text_document.idx |
        cut -c 35-36)" = "$(echo "$size" | tr 24 84 | sed 's/^/0/')" ]
    want=0
    [ $n = 65537 ] && want=2
    expect $want "$n tokens as uint16" gpt-preprocess --input small.jsonl \
        --output-prefix v$n --vocab-file big-vocab.json --dtype uint16 \
        --merge-file "$top/tests/golden/gpt2/merges.txt" --force
done
err_has 'the vocabulary has 65537 tokens, but uint16 holds 65536'
nothing_left m_

# ---- outputs ----

cp my_text_document.bin kept
expect 7 'an output that exists' pp big.jsonl my
err_has 'my_text_document'
check 'stays as it was' cmp kept my_text_document.bin
expect 0 'replaced with --force' pp big.jsonl my --force --append-eod
check 'by the new one' cmp w1_text_document.bin my_text_document.bin
expect 4 'a folder that is not there' pp small.jsonl none/my
expect 4 'a file in place of the folder' pp small.jsonl small.jsonl/my
if [ "$(id -u)" = 0 ]; then
    skip 'root may write anywhere'
else
    chmod 500 folder
    expect 4 'a folder that cannot be written' pp small.jsonl folder/my
fi
expect 4 'a limit on file size' sh -c "ulimit -f 100; trap '' XFSZ
    exec gpt-preprocess --input big.jsonl --output-prefix lim $vocab"
nothing_left lim_
mkdir disk
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=200k tmpfs disk 2>/dev/null
then
    expect 4 'a full disk' pp big.jsonl disk/full
    err_has 'No space left'
    check 'nothing is left there' [ -z "$(ls -A disk)" ]
    umount disk
else
    skip 'cannot mount a small disk'
fi

# ---- signals ----

mkfifo fifo
# shellcheck disable=SC2086 # word list; not pp, whose pid would be a subshell's
gpt-preprocess --input fifo --output-prefix sig $vocab >sig.log 2>&1 &
pid=$!
exec 9>fifo
cat big.jsonl >&9
sleep 0.3
kill -TERM $pid
wait $pid
status=$?
exec 9>&-
check 'SIGTERM ends it, though the pipe is open' [ $status = 143 ]
nothing_left sig_

# ---- messages ----

expect 0 'log interval' pp big.jsonl log --log-interval 10000
err_has 'Processed '
err_has 'MB/s'
expect 0 'quiet' pp big.jsonl quiet --quiet
check 'says nothing' [ ! -s "$scratch/err" ]
expect 0 'help' gpt-preprocess --help
out_has '--json-keys'
tap_done
