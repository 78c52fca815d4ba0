#!/bin/sh
# gpt-vocab: formats, determinism, and messages about bad input and output.
. "$(dirname "$0")/../lib/tap.sh"

vocab() { # prefix size option...
    prefix=$1 size=$2
    shift 2
    gpt-vocab --output-prefix "$prefix" --vocab-size "$size" "$@"
}
same_merges() { # description prefix
    check "$1" cmp want "$2-merges.txt"
}

# ---- a small text, of which every merge is known ----
cat >three.jsonl <<'X'
{"id":1,"text":"the cat and the dog\nand the hat"}
{"id":2,"text":"the \u0063at's hat","title":"that"}
{"id":3,"text":["the end","and the rest"]}
X
# he comes 6 times (as often as th, but h is before t), the 6, at 4, nd 4, and
# 3 (as often as " the").
cat >want <<'X'
#version: 0.2
h e
t he
a t
n d
a nd
X
expect 0 'trains on JSON lines' vocab a 262 --input three.jsonl
same_merges 'the merges are those made by hand' a
err_has '3 documents'
err_has '262 tokens, 5 of them merges'
check 'the bytes come first' grep -q '^{"!":0,"\\"":1,' a-vocab.json
check 'then merges, then <|endoftext|>' grep -qF \
    '"Ń":255,"he":256,"the":257,"at":258,"nd":259,"and":260,"<|endoftext|>":261}' \
    a-vocab.json
expect 0 'the tokenizer loads it' gpt-preprocess --input three.jsonl \
    --output-prefix tokens --vocab-file a-vocab.json --merge-file a-merges.txt
expect 0 '_ for - and a short list' gpt-vocab --input three.jsonl --json_keys \
    text --output_prefix b --vocab_size 262 -q
check "quiet says nothing" test ! -s err
for n in 0 1; do
    expect 0 "pairs that occur once: $n" vocab once$n 300 --input three.jsonl \
        --min-frequency $n
    err_has 'no other pair occurs 1 time'
done
check 'frequency 0 is frequency 1' cmp once0-merges.txt once1-merges.txt
expect 0 'several files are one corpus' vocab c 262 --min-frequency 12 \
    --input three.jsonl three.jsonl
err_has 'warning: the vocabulary has 259 tokens, not 262'
expect 0 'only bytes' vocab d 257 --input three.jsonl
check 'no merges' test "$(cat d-merges.txt)" = '#version: 0.2'

# ---- a larger text, of several blocks, for several threads ----
awk 'BEGIN {
    srand(7)
    split("the of and lord said unto shall house 1234 \\u00e9t\\u00e9 a.b", w)
    for (i = 0; i < 60000; i++) {
        printf "{\"n\":%d,\"text\":\"", i
        for (k = 0; k < 12; k++)
            printf "%s%s", k ? " " : "", k % 4 ? w[int(rand() * 11) + 1] \
                                               : int(rand() * 1e6)
        print "\"}"
    }
}' >big.jsonl
expect 0 'one thread' vocab want 2000 --input big.jsonl --threads 1
mv want-merges.txt want
for n in 2 5; do
    expect 0 "$n threads" vocab "t$n" 2000 --input big.jsonl --threads $n
    same_merges "... the same merges" "t$n"
done
expect 0 'from a pipe' sh -c 'gpt-vocab --input - --output-prefix p \
    --vocab-size 2000 <big.jsonl'
same_merges '... the same merges' p
if command -v xz >/dev/null && gpt-vocab --version | grep -q lzma; then
    xz -0 -k big.jsonl
    mv big.jsonl.xz packed # what it is, the content tells
    expect 0 'xz' vocab x 2000 --input packed
    same_merges '... the same merges' x
    head -c 100000 packed >half.xz
    expect 3 'half an xz file' vocab h 2000 --input half.xz
    err_has 'half.xz'
else
    skip "no xz, or built without it"
fi
if gpt-vocab --version | grep -q zlib; then
    gzip -1 -c big.jsonl >packed
    expect 0 'gzip' vocab z 2000 --input packed
    same_merges '... the same merges' z
    head -c 100000 packed >half.gz
    expect 3 'half a gzip file' vocab h 2000 --input half.gz
    err_has 'half.gz: gzip data truncated'
else
    skip 'built without zlib'
fi
if command -v zstd >/dev/null && gpt-vocab --version | grep -q zstd; then
    zstd -q -1 -c big.jsonl >packed
    expect 0 'zstd' vocab s 2000 --input packed
    same_merges '... the same merges' s
else
    skip 'no zstd, or built without it'
fi

# Plain text is divided into blocks between pieces only: one line of 5 MB gives
# the same as one document.
sed 's/.*text":"//; s/"}$//' big.jsonl | tr '\n' ' ' >line.txt
printf '{"text":"%s"}\n' "$(cat line.txt)" | sed 's/"}$/ "}/' >line.jsonl
expect 0 'one long document' vocab want 3000 --input line.jsonl -f
mv want-merges.txt want
sed 's/\\u00e9/é/g' line.txt >line2.txt
expect 0 'the same as text' vocab l 3000 --input line2.txt
same_merges '... the same merges' l
err_has '1 document,'
expect 0 'JSON read as text' vocab m 300 --input three.jsonl \
    --input-format text
err_has '1 document,'
head -c 3000000 /dev/zero | tr '\0' 'a' >aaa
expect 0 'text without white space' vocab n 300 --input aaa
check '... doubles' grep -q '^aaaaaaaa aaaaaaaa$' n-merges.txt

# ---- messages about bad input ----
expect 4 'no such file' vocab e 300 --input nowhere.jsonl
err_has 'nowhere.jsonl'
mkdir folder few
expect 3 'a directory without input' vocab e 300 --input folder
cp three.jsonl few/
expect 0 'a directory' vocab few 262 --input few
check 'is its files' cmp few-merges.txt a-merges.txt
printf '{"text":"a"}\nthis is no JSON\n{"text":"b"}\n' >bad.jsonl
expect 3 'a line that is no JSON' vocab e 300 --input bad.jsonl
err_has 'bad.jsonl:2'
{ cat big.jsonl; echo '{"text":"cut off'; cat big.jsonl; echo '{}'; } >late.jsonl
expect 3 'the first bad line of several' vocab e 300 --input late.jsonl \
    --threads 3
err_has 'late.jsonl:60001'
printf '{ a brace }' >brace
expect 3 'text that looks like JSON' vocab e 300 --input brace
err_has '--input-format text'
expect 3 'no such key' vocab e 300 --input three.jsonl --json-keys title
err_has 'three.jsonl:1'
printf '\nx' >blank.jsonl
expect 3 'a blank line' vocab e 300 --input blank.jsonl
err_has 'blank.jsonl:1'
: >empty.jsonl
expect 3 'no text at all' vocab e 300 --input empty.jsonl
err_has 'no text'
expect 2 'fewer tokens than bytes' vocab e 256 --input three.jsonl
expect 2 'more than others read' vocab e 2097153 --input three.jsonl
err_has '--vocab-size'
expect 2 'frequency -1' vocab e 300 --input three.jsonl --min-frequency -1
expect 2 'no input' gpt-vocab --output-prefix e
expect 2 'no output' gpt-vocab --input three.jsonl
expect 2 'a directory for a prefix' vocab ./ 300 --input three.jsonl
err_has './my writes ./my-vocab.json'
expect 2 'unknown format' vocab e 300 --input three.jsonl --input-format xml
expect 2 'a typing error' vocab e 300 --input three.jsonl --min-frequenzy 3
err_has '--min-frequency'
check 'none of them left anything' sh -c '! ls -A | grep "^[.]*e-"'

# ---- output ----
cp a-vocab.json before
expect 7 'both outputs exist' vocab a 300 --input three.jsonl
err_has 'a-vocab.json'
rm a-vocab.json
expect 7 'one output exists' vocab a 300 --input three.jsonl
err_has 'a-merges.txt'
check 'nothing is left of it' test ! -e a-vocab.json
expect 0 '--force replaces' vocab a 262 --input three.jsonl --force
check 'the same bytes again' cmp before a-vocab.json
expect 4 'no such directory' vocab nodir/a 300 --input three.jsonl
err_has 'nodir/a-vocab.json'
ln -s /dev/full f-vocab.json
expect 4 'a full disk' vocab f 300 --input three.jsonl
err_has 'f-vocab.json'
check 'no merges without a vocabulary' test ! -e f-merges.txt
if [ "$(id -u)" = 0 ]; then
    skip 'root may write everywhere'
else
    mkdir locked && chmod 555 locked
    expect 4 'a directory that is write-protected' vocab locked/a 300 \
        --input three.jsonl
fi
tap_done
