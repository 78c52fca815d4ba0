#!/bin/sh
# gpt-preprocess with directories, patterns and shards: which lines it reads, in
# which order; merged shards are the data set of one run without shards.
# shellcheck disable=SC2086,SC2154 # word lists; $top and $scratch are tap.sh's
. "$(dirname "$0")/../lib/tap.sh"

bytes='--tokenizer-type ByteTokenizer --append-eod'
pp() { # prefix inputs and options...
    pp_out=$1
    shift
    gpt-preprocess --output-prefix "$pp_out" $bytes --input "$@"
}
same_as() { # wanted-prefix prefix
    cmp "$1_text_document.bin" "$2_text_document.bin" &&
        cmp "$1_text_document.idx" "$2_text_document.idx"
}

# ---- names ----

line() { echo "{\"text\":\"$1\"}"; }
mkdir -p tree/b/deep tree/c tree/.hidden
line 1 >tree/B.jsonl
line 2 >tree/a.json
line 3 >tree/b/deep/x.ndjson
line 4 >tree/b/y.jsonl
line 5 >tree/c/z.jsonl
for f in tree/README tree/.hidden/h.jsonl tree/.h.jsonl tree/c/z.jsonl.sha256
do echo 'not to be read' >$f; done
cat tree/B.jsonl tree/a.json tree/b/deep/x.ndjson tree/b/y.jsonl \
    tree/c/z.jsonl >all.jsonl
if gpt-preprocess --version | grep -q zlib; then
    gzip tree/b/y.jsonl
fi
expect 0 'one by one' pp one all.jsonl
expect 0 'a directory' pp dir tree
check 'sorted by the bytes of the paths' same_as one dir
expect 0 'a directory with slashes' pp slash tree//
check 'the same' same_as one slash
ln -s nowhere tree/c/README
expect 0 'a directory with a link that leads nowhere' pp nowhere tree
err_has "'tree/c/README' is a link that leads nowhere: it is skipped"
check 'the same' same_as one nowhere
ln -s nowhere tree/c/y.jsonl
expect 4 'such a link with the name of an input' pp no tree
err_has "cannot open 'tree/c/y.jsonl'"
rm tree/c/README tree/c/y.jsonl
expect 0 'a quoted pattern' pp glob 'tree/[aB].json*' 'tree/b/*'
line 1 | cat - tree/a.json tree/b/deep/x.ndjson >some.jsonl
line 4 >>some.jsonl
expect 0 'the same files' pp some some.jsonl
check 'sorted, and directories below a pattern too' same_as some glob
expect 0 'the order of the words' pp order tree/c tree/a.json tree/B.jsonl
{ line 5; line 2; line 1; } | gpt-preprocess --input - --output-prefix words \
    $bytes -q
check 'is kept' same_as words order
line 6 >'odd[1]*.jsonl'
expect 0 'a file with odd characters in its name' pp odd 'odd[1]*.jsonl'
expect 0 'a file twice' pp twice tree/B.jsonl tree/B.jsonl
err_has "input 'tree/B.jsonl' is the same file as 'tree/B.jsonl'"
err_has 'read twice'
check 'is read twice' [ "$(wc -c <twice_text_document.bin)" = 8 ]
ln tree/a.json linked.json
expect 0 'patterns that overlap' pp overlap linked.json 'tree/*.json*' \
    'tree/[aB].json*'
err_has "3 inputs are files that other inputs name, too, the first 'tree/a.json'"
err_has "the same file as 'linked.json'"
rm linked.json
expect 0 'other files' pp others tree/B.jsonl tree/a.json
check 'without a warning' sh -c '! grep -q warning err'
mkdir -p deep empty
ln -s . deep/circle
expect 4 'links in a circle' pp circle deep
err_has 'Too many levels of symbolic links'
expect 3 'a directory without input' pp no empty
err_has "directory 'empty' holds no file named *.jsonl"
expect 4 'a pattern without a file' pp no 'tree/*.xyz'
err_has "no file matches 'tree/*.xyz'"
expect 4 'a file that is not there' pp no tree/none.jsonl
err_has "cannot open 'tree/none.jsonl'"

# ---- shards ----

# Lines of all lengths, an empty file, a file without a last newline, a line
# that is longer than a shard.
mkdir corpus
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) {
    printf "{\"text\":\"%d ", i
    for (k = int(rand() * rand() * 300); k > 0; k--) printf "x%d", k
    print "\"}" } }' >lines
head -n 150 lines >corpus/1.jsonl
: >corpus/2.jsonl
head -c 300000 /dev/zero | tr '\0' a | sed 's/.*/{"text":"&"}/' >corpus/3.jsonl
sed -n 151,300p lines >corpus/4.jsonl
sed -n 301,399p lines >corpus/5.jsonl
printf '%s' "$(sed -n 400p lines)" >>corpus/5.jsonl
expect 0 'without shards' pp whole corpus
shards() { # N: all shards, merged
    i=0
    rm -f part-*
    while [ $i -lt "$1" ]; do
        i=$((i + 1))
        pp part corpus --shard $i/$1 -q 2>err || { cat err; return 1; }
    done
    gpt-dataset merge part-*-of-*_text_document.idx --output-prefix merged \
        --force -q && cmp merged.bin whole_text_document.bin &&
        cmp merged.idx whole_text_document.idx
}
for n in 1 2 3 8 61; do
    check "$n shards are the whole" shards $n
done
check 'shards have names in their order' [ -e part-00007-of-00061_text_document.bin ]
if gpt-preprocess --version | grep -q zlib; then
    gzip -k corpus/4.jsonl
    mv corpus/4.jsonl 4.jsonl
    check 'compressed files are not divided' shards 5
    mv 4.jsonl corpus/
    rm corpus/4.jsonl.gz
    gzip lines
    expect 0 'one packed file' pp packed lines.gz
    for i in 1 2 3; do
        expect 0 "part $i of it" pp pack lines.gz --shard $i/3
    done
    gunzip lines.gz
    check 'all of it is in the first part' cmp packed_text_document.bin \
        pack-00001-of-00003_text_document.bin
    check 'and none in the others' [ "$(cat pack-0000[23]-of-*.bin | wc -c)" = 0 ]
    check 'whose input has no bytes' grep -q '"bytes":	0,' \
        pack-00002-of-00003_text_document.json
fi

# A shard that was killed is resumed; each shard has its own quarantine file.
sed '200s/.*/bad/' lines >bad.jsonl
expect 3 'a bad line' pp bad bad.jsonl --shard 2/3 --resume-interval 0 \
    --workers 1
at=$(head -n 199 bad.jsonl | wc -c)
err_has "bad.jsonl: offset $at: not JSON"
check 'offset is where the line begins' \
    [ "$(tail -c +$((at + 1)) bad.jsonl | head -n 1)" = bad ]
for i in 1 2 3; do
    expect 0 "shard $i" pp q bad.jsonl --shard $i/3 --on-error quarantine=bad
done
check 'the bad line is kept once' \
    [ "$(cat bad-00001-of-00003 bad-00002-of-00003 bad-00003-of-00003)" = bad ]
expect 0 'skipped without shards' pp unshard bad.jsonl --on-error skip
gpt-dataset merge q-*.idx --output-prefix q -q
check 'the same' cmp q.bin unshard_text_document.bin
rm q-00002-of-00003*
cp q.bin whole.bin
expect 3 'a shard is missing' gpt-dataset merge q-*.idx --output-prefix q --force
err_has 'shard 2 of 3 is missing'
err_has '--allow-missing-shards'
check 'the old set stays' cmp whole.bin q.bin
expect 3 'the last one is' gpt-dataset merge q-00001*.idx --output-prefix one
err_has 'shard 2 of 3 is missing'
expect 0 'it may be' gpt-dataset merge q-*.idx --output-prefix q --force \
    --allow-missing-shards
err_has 'warning: shard 2 of 3 is missing'
expect 3 'shards in another order' gpt-dataset merge q-00003*.idx \
    q-00001*.idx --output-prefix q --force
err_has 'shard 1 of 3 is out of order'
err_has 'shard 2 of 3 is missing'

for s in 0/3 4/3 1/0 -1/3 x 1 1/ /3 1/3/4 1/100000; do
    expect 2 "--shard $s" pp no bad.jsonl --shard $s
    err_has "--shard is '$s'"
done
expect 2 'standard input' pp no - --shard 1/2
err_has 'standard input cannot be divided'
mkfifo fifo
expect 2 'a pipe' pp no fifo --shard 1/2
err_has "'fifo' cannot be divided"
tap_done
