#!/bin/sh
# Provenance of a data set: the JSON and the sources beside it, and how
# gpt-dataset uses them.
# shellcheck disable=SC2086,SC2154 # word lists; $top and $scratch are tap.sh's
. "$(dirname "$0")/../lib/tap.sh"

bytes='--tokenizer-type ByteTokenizer --append-eod'
set=x_text_document
printf '{"text":"a"}\n{"text":["bc","d"]}\n{"text":""}\n\n' >a.jsonl
printf '{"text":"0123456789"}\nnot JSON\n{"text":"last"}' >b.jsonl
expect 0 'two files' gpt-preprocess --input a.jsonl b.jsonl --output-prefix x \
    $bytes --on-error skip --sources --workers 2
cp $set.json first.json
cp $set.sources first.sources
has() { check "it holds $1" grep -qF -e "$1" first.json; }
has '"tool":	"gpt-preprocess'
has '"unicode":	"16.0"'
has '"command":	["input = a.jsonl b.jsonl", "output-prefix = x", '
has '"key":	"text"'
has '"dtype":	"uint16"'
has '"documents":	5'
has '"sequences":	5'
has '"tokens":	22'
has '"text_bytes":	18'
has '"bytes_per_token":	0.8181818181818182'
has '"blank line":	1'
has '"not JSON":	1'
has "\"bytes\":	$(wc -c <a.jsonl),"
has '"xxh64":	"3450f5ed505822db"' # of a.jsonl, by another program
check 'without the number of workers' sh -c '! grep -i workers first.json'
check 'five lengths: 0, 2, 5, 4, 11' [ "$(tr -d ' \t\n' <first.json |
    grep -o '"from":[0-9]*,"to":[0-9]*,"documents":[0-9]*' | tr -dc '0-9,\n' |
    tr '\n' ' ')" = '0,0,1 2,3,1 4,7,2 8,15,1 ' ]
for n in 1 3; do
    expect 0 "$n workers" gpt-preprocess --input a.jsonl b.jsonl \
        --output-prefix x $bytes --on-error skip --sources --workers $n \
        --threads $n --force
    check 'same JSON' cmp first.json $set.json
    check 'same sources' cmp first.sources $set.sources
done

expect 0 'info' gpt-dataset info $set
out_has "by gpt-preprocess"
out_has '2 inputs, 92 B, ByteTokenizer of 257 tokens'
expect 0 'info --json' gpt-dataset info $set --json
out_has '"provenance":{"tool":"gpt-preprocess'
expect 0 'cat --sources' gpt-dataset cat $set --sources
cut -f 1 out >places
printf 'a.jsonl:1\na.jsonl:2\na.jsonl:3\nb.jsonl:1\nb.jsonl:3\n' >want
check 'file and line of each document' cmp want places
expect 0 'cat --sources --jsonl' gpt-dataset cat $set --sources --jsonl \
    --documents 4 --tokenizer-type ByteTokenizer --strip-eod
echo '{"document":4,"file":"b.jsonl","line":3,"offset":31,"text":"last"}' >want
check 'as fields' cmp want out
check 'the offset is where the line begins' \
    [ "$(tail -c +32 b.jsonl)" = '{"text":"last"}' ]

# In a shard of a file offsets are known in place of lines; several keys.
awk 'BEGIN { for (i = 0; i < 100; i++)
    printf "{\"a\":\"%d\",\"b\":\"%s\"}\n", i, i % 2 ? i : "" }' >ab.jsonl
expect 0 'a shard' gpt-preprocess --input ab.jsonl --json-keys a b $bytes \
    --output-prefix s --shard 2/2 --sources --empty drop
json=s-00002-of-00002_b_document.json
check 'with the number of shards' grep -q '"shards":	2' $json
check 'key b has half of the documents' grep -q '"documents":	25,' $json
begin=$(sed -n 's/.*"offset":	\([0-9]*\),.*/\1/p' $json)
expect 0 'its first document' gpt-dataset cat s-00002-of-00002_b_document.idx \
    --sources --documents 0
at=$(sed 's/^ab.jsonl@\([0-9]*\)	.*/\1/' out)
check 'is at an offset of the file' [ "$at" -ge "$begin" ]
check 'where its line is' [ "$(tail -c +$((at + 1)) ab.jsonl | head -n 1)" = \
    '{"a":"51","b":"51"}' ]
# A merged set has the provenance of all its parts.
for i in 1 2; do
    gpt-preprocess --input a.jsonl b.jsonl --output-prefix m $bytes -q \
        --on-error skip --sources --shard $i/2 2>/dev/null
done
expect 0 'merge' gpt-dataset merge m-*.idx --output-prefix m
gpt-preprocess --input a.jsonl b.jsonl --output-prefix w $bytes -q \
    --on-error skip --sources 2>/dev/null
flat() { tr -d ' \t\n' <"$1"; }
counts() { flat "$1" | sed 's/.*\("documents":.*\),"inputs".*/\1/'; }
check 'counts, lengths and bad lines add up' \
    [ "$(counts m.json)" = "$(counts w_text_document.json)" ]
check 'the parts are named' grep -q \
    '"set":	"m-00002-of-00002_text_document"' m.json
gpt-dataset cat m --sources | cut -f 1 | sed 's/[:@].*//' >got
printf 'a.jsonl\na.jsonl\na.jsonl\nb.jsonl\nb.jsonl\n' >want
check 'sources name the same files' cmp want got
expect 0 'info' gpt-dataset info m
out_has 'by gpt-dataset'
sed -i 's/"vocabulary":	257/"vocabulary":	258/' \
    m-00002-of-00002_text_document.json
expect 3 'two tokenizers' gpt-dataset merge m-*.idx --output-prefix m --force
err_has 'm-00002-of-00002_text_document was made with ByteTokenizer of 258'
err_has 'm-00001-of-00002_text_document with ByteTokenizer of 257 tokens'
err_has '--allow-vocab-mismatch'
check 'the old set stays' grep -q '"vocabulary":	257' m.json
expect 0 'insisted on' gpt-dataset merge m-*.idx --output-prefix m --force \
    --allow-vocab-mismatch
err_has 'warning: m-00002-of-00002_text_document was made with'
check 'the set names no tokenizer' sh -c '! grep -q "^	\"tokenizer\"" m.json'
check 'the parts name theirs' \
    [ "$(grep -c '"tokenizer":' m.json)" = 2 ]
expect 0 'a key of its own' sh -c "sed -i 's/\"key\":	\"text\"/\"key\":	\"k\"/;
    s/\"vocabulary\":	258/\"vocabulary\":	257/' \
    m-00002-of-00002_text_document.json
    exec gpt-dataset merge m-*.idx --output-prefix m --force"
check 'is not that of the whole' sh -c '! grep -q "\"key\":" m.json'
check 'whose tokenizer is' grep -q '^	"tokenizer":	{' m.json
for i in 1 2; do
    perl -pi -e 's/"index":\t\K"MMIDIDX"/"{\"a\":" x 40 . 1 . "}" x 40/e' \
        m-0000$i-of-00002_text_document.json
done
expect 0 'objects in objects' perl -e 'alarm 60; exec @ARGV' \
    gpt-dataset merge m-*.idx --output-prefix m --force
check 'are compared once' grep -q '"index":.*{' m.json
cp m-00001-of-00002_text_document.sources whole
head -c 40 whole >m-00001-of-00002_text_document.sources
expect 3 'sources that are cut' gpt-dataset merge m-*.idx --output-prefix new
err_has 'm-00001-of-00002_text_document.sources: it has 32 bytes of records, but'
rm m-00001-of-00002_text_document.sources
expect 7 'a JSON that exists' gpt-dataset merge m-*.idx --output-prefix m
rm m.*
expect 0 'sources that lack a part' gpt-dataset merge m-*.idx --output-prefix m
check 'are not written' [ ! -e m.sources ]
rm m.* m-00001-of-00002_text_document.json
expect 0 'a provenance that lacks one' gpt-dataset merge m-*.idx \
    --output-prefix m
check 'is not written' [ "$(echo m.*)" = 'm.bin m.idx' ]

if gpt-preprocess --version | grep -q zlib; then
    gzip -k a.jsonl
    expect 0 'a packed file' gpt-preprocess --input a.jsonl.gz $bytes \
        --output-prefix z --on-error skip --sources
    check 'its own bytes are counted' grep -q \
        "\"bytes\":	$(wc -c <a.jsonl.gz)," z_text_document.json
    expect 0 'lines' gpt-dataset cat z_text_document --sources --documents 2
    check 'are those of the text' grep -q '^a.jsonl.gz:3	' out
fi

# ---- a JSON that is taken for an input ----
expect 3 'a pattern that names a JSON of an earlier run' gpt-preprocess \
    --input "$set.js*" --output-prefix all $bytes --on-error skip
err_has "$set.json: not text: it is what an earlier run of gpt-preprocess wrote"
err_has 'leave it out of the input'
check 'nothing is written' [ "$(echo all*)" = 'all*' ]
expect 2 'and would replace it' gpt-preprocess --input "$set.js*" \
    --output-prefix "${set%_text_document}" $bytes --force
err_has "or leave '$set.json' out of the pattern or folder"

# ---- files that are missing or damaged ----

expect 0 'neither' gpt-preprocess --input a.jsonl --output-prefix no $bytes \
    --on-error skip --no-provenance
check 'two files' [ "$(echo no_*)" = 'no_text_document.bin no_text_document.idx' ]
expect 4 'no sources' gpt-dataset cat no_text_document --sources
err_has "'no_text_document.sources'"
err_has 'gpt-preprocess --sources writes it'
expect 4 'a letter too few' gpt-dataset info ./no_text_documen
err_has 'did you mean ./no_text_document?'
expect 7 'a JSON that exists' sh -c "echo {} >no2_text_document.json
    exec gpt-preprocess --input a.jsonl --output-prefix no2 $bytes \
    --on-error skip"
err_has "'no2_text_document.json' exists already"
head -c 80 first.sources >$set.sources
expect 3 'sources that are cut' gpt-dataset cat $set --sources
err_has '72 bytes of records, but 5 documents need 80'
{ printf 'GPTSRC1\0\377\377\377\377'; tail -c +13 first.sources; } >$set.sources
expect 3 'an input that is not there' gpt-dataset cat $set --sources
err_has 'document 0 comes from input number 4294967295, must be below 2'
cp first.sources $set.sources
echo '{"inputs": [{"path": 3}]}' >$set.json
expect 3 'a JSON without names' gpt-dataset cat $set --sources
echo '{"inputs": ' >$set.json
expect 3 'a JSON that is cut' gpt-dataset info $set
err_has "$set.json"

# ---- names that are no UTF-8, which JSON cannot hold ----

odd=$(printf 'od\377d')
printf '{"text":"some words of a text, and more"}\n' >"$odd.jsonl"
expect 0 'a name in another encoding' gpt-preprocess --input "$odd.jsonl" \
    --output-prefix "$odd" $bytes
expect 0 'the data set is shown' gpt-dataset info "${odd}_text_document"
out_has 'by gpt-preprocess'
train() { # steps
    gpt-train --num-layers 1 --hidden-size 16 --num-attention-heads 1 \
        --seq-length 8 --split 1,0,0 --lr 1e-3 --train-iters "$1" \
        --threads 1 --device cpu --data-path "${odd}_text_document" \
        --tokenizer-type ByteTokenizer --save "$odd" --load "$odd"
}
expect 0 'a run on it' train 1
expect 0 'is resumed' train 2
err_has 'loaded checkpoint'
tap_done
