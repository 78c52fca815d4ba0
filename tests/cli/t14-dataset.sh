#!/bin/sh
# gpt-dataset: what it prints about sets whose bytes are known, what it finds in
# sets that are damaged on purpose, and how it repairs them.
. "$(dirname "$0")/../lib/tap.sh"

bytes='--tokenizer-type ByteTokenizer'

pack() { # prefix: JSON lines on stdin
    cat >"$1.jsonl"
    gpt-preprocess --input "$1.jsonl" --output-prefix "$1" $bytes \
        --append-eod --quiet &&
        mv "$1_text_document.bin" "$1.bin" && mv "$1_text_document.idx" "$1.idx"
}
# Copies set a and overwrites bytes of one file; the bytes are octal escapes, in
# little-endian order.
damage() { # new-prefix file offset escapes
    cp a.bin "$1.bin" && cp a.idx "$1.idx" &&
        printf "$4" | dd of="$1.$2" bs=1 seek="$3" conv=notrunc status=none
}

# Five documents: 3 + 1, 0, two sequences of 2 and 3, 1 + 1, 0 tokens.
pack a <<'JSON'
{"text":"abc"}
{"text":""}
{"text":["de","fg"]}
{"text":"h"}
{"text":""}
JSON
check 'a set to work on' test -s a.bin -a -s a.idx

# ---- info, stat ----
expect 0 'info' gpt-dataset info a a
check 'a line a set, heading and sum' [ "$(wc -l <out)" = 4 ]
check 'its counts' grep -qE '^U16 +5 +4 +11 .* a$' out
check 'their sum' grep -qE '^all +10 +8 +22 .* total$' out
expect 0 'info as JSON' gpt-dataset info a --json
out_has '"dtype":"U16","documents":5,"sequences":4,"tokens":11,"bin_bytes":22,"idx_bytes":130'
expect 0 'stat' gpt-dataset stat a --json
out_has '"empty_documents":2,"empty_sequences":0'
out_has '{"min":0,"median":2,"p90":5,"p99":5,"max":5}'
out_has '[{"from":0,"to":0,"documents":2},{"from":2,"to":3,"documents":1},{"from":4,"to":7,"documents":2}]'
check 'tokens are not read' [ "$(grep -c distinct out)" = 0 ]
expect 0 'stat of tokens' gpt-dataset stat a --top 2 $bytes --json
out_has '"distinct_ids":9,"last_id":256,"documents_with_last_id":3,"text_bytes":8,"top":[{"id":256,"count":3},{"id":97,"count":1}]'
expect 0 'stat as a table' gpt-dataset stat a --top 1 $bytes
out_has '3 of 3 documents end with token 256'
i=0
while [ $i -lt 3000 ]; do
    i=$((i + 1))
    printf '{"text":"%*s"}\n' $((i * 7919 % 3001)) ''
done | pack many
expect 0 'stat of lengths 2 to 3001, each once' gpt-dataset stat many --json
out_has '{"min":2,"median":1501,"p90":2701,"p99":2971,"max":3001}'

# ---- cat ----
expect 0 'cat of ids' gpt-dataset cat a
printf '97 98 99 256\n\n100 101\t102 103 256\n104 256\n\n' >want
check 'a document a line' cmp out want
expect 0 'cat of text' gpt-dataset cat a $bytes --strip-eod
printf 'abc\n\ndefg\nh\n\n' >want
check 'the text' cmp out want
expect 0 'cat as JSON lines' gpt-dataset cat a --jsonl --documents 2:4
printf '{"document":2,"ids":[[100,101],[102,103,256]]}\n{"document":3,"ids":[104,256]}\n' >want
check 'a list of sequences' cmp out want
expect 0 'no document' gpt-dataset cat a --tail 0
check 'is nothing' test ! -s out
expect 0 'the tail' gpt-dataset cat a --jsonl --tail 2 --documents :4
check 'of the range' cmp out want
expect 0 'one document' gpt-dataset cat a --documents 3
printf '104 256\n' >want
check 'by its number' cmp out want
expect 0 'cat of everything' gpt-dataset cat a $bytes --jsonl --strip-eod
cp out again.jsonl
pack b <again.jsonl
check 'packs to the same tokens' cmp a.bin b.bin
check 'and the same index' cmp a.idx b.idx
expect 2 'not past the end' gpt-dataset cat a --documents 3:6
err_has "a has 5 documents"
expect 2 'nor from there on' gpt-dataset cat a --documents 6:
err_has "a has 5 documents"
for range in x 2:1 -1: 3:x '' 99999999999999999999; do
    expect 2 "no range: '$range'" gpt-dataset cat a --documents "$range"
done
expect 2 'no vocabulary, no end' gpt-dataset cat a --strip-eod
printf '{"text":"\\u00e9\\u4e16\\ud83d\\ude00 \\" \\\\ \\n \\u0001"}\n' | pack u
expect 0 'text beyond ASCII' gpt-dataset cat u $bytes --jsonl --strip-eod
printf '{"document":0,"text":"\303\251\344\270\226\360\237\230\200 \\" \\\\ \\n \\u0001"}\n' >want
check 'is UTF-8' cmp out want
# The same with truncated characters.
printf '\303\000\251\000\344\000\270\000\303\000\251\000\377\000\350\000a\000' >c.bin
printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\4\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' >c.idx
expect 0 'characters that are cut' gpt-dataset cat c $bytes --jsonl --strip-eod
printf '{"document":0,"text":"\303\251\357\277\275"}\n{"document":1,"text":"\303\251\357\277\275\357\277\275a"}\n' >want
check 'become U+FFFD' cmp out want

# What a file says is shown without what a terminal would obey.
cp a.bin shown.bin
cp a.idx shown.idx
printf '{"tool":"x\\u001b[31m\\u009b1m\\ny","inputs":[]}\n' >shown.json
expect 0 'a JSON with control characters' gpt-dataset info shown
out_has 'by x\x1b[31m\xc2\x9b1m\x0ay,'
check 'no escape character is printed' \
    sh -c '! tr -d "\012\040-\176\200-\377" <out | grep -q .'

# ---- verify ----
for words in '--vocab-size 300' '--tiktoken-pattern v1' \
    '--tiktoken-num-special-tokens 3' '--tokenizer-special-tokens a b'; do
    # shellcheck disable=SC2086 # a word list
    expect 2 "$words without a tokenizer" gpt-dataset cat a $words
    err_has "${words%% *} has no effect without a tokenizer"
done
expect 2 'the size of a vocabulary that has one' gpt-dataset stat a $bytes \
    --vocab-size 3
err_has 'vocab-size has no effect on ByteTokenizer'
expect 2 'verify: an option of a family' gpt-dataset verify a \
    --tiktoken-pattern v1
err_has 'has no effect without a tokenizer'
expect 0 'a limit' gpt-dataset verify a --vocab-size 257 $bytes
expect 0 'a good set' gpt-dataset verify a many --vocab-size 257 --eod 256
out_has 'a: good'
found() { # description prefix words... : what verify must name
    what=$1 prefix=$2
    shift 2
    expect 3 "verify: $what" gpt-dataset verify "$prefix" --vocab-size 257 \
        --eod 256 --json
    check "finds $*" [ "$(grep -o '"counts":{[^}]*}' out)" = "\"counts\":{$*}" ]
}
damage d bin 2 '\1\1'
found 'a wild token' d '"token-range":1'
damage d bin 6 '\1\0'
found 'no end of a document' d '"eod-missing":1'
damage d idx 34 '\377\377\377\377'
found 'a negative length' d '"length":1,"pointer":3,"bin-too-long":1'
damage d idx 58 '\11'
found 'a pointer' d '"pointer":1'
damage d idx 62 '\1'
found 'a pointer that is right in 32 bits' d '"pointer-32-bit":1'
damage d idx 90 '\4'
found 'two documents out of order' d '"document-order":1'
damage d idx 122 '\3'
found 'a document index that stops early' d '"document-order":1,"documents-missing":1'
damage d idx 17 '\4'
found 'a type too wide' d '"dtype":1'
damage d idx 17 '\6'
found 'a floating type' d '"dtype":1'
gpt-dataset verify d >out 2>err
out_has 'float64 in Megatron-LM, float32 in GPT-NeoX'
damage d idx 0 'X'
found 'another magic' d '"header":1'
damage d idx 18 '\377\377\377\377\377\377\377\177'
found 'a number of sequences that is not there' d '"header":1'
damage d idx 26 '\0'
found 'no document index' d '"header":1'
damage d idx 130 'more'
found 'modes' d '"idx-size":1'
damage d bin 0 ''
head -c 17 a.bin >d.bin
found 'half a .bin' d '"bin-truncated":1'
printf '\0\0' | cat a.bin - >d.bin
found 'a token too many' d '"bin-too-long":1'
printf '\0\0\0\0\0\0' | cat a.bin - >d.bin
found 'a token too many for each document' d '"eod-length":1'
damage d idx 46 '\1'
cp d.idx e.idx
printf '\7\7\7\7' | dd of=e.idx bs=1 seek=58 conv=notrunc status=none
printf '\1\1' | cat - a.bin | head -c 22 >e.bin
expect 3 'several' gpt-dataset verify e --vocab-size 257
check 'pointers' grep -q '^pointer .*e.idx:58' out
check 'lengths' grep -q '^bin-too-long' out
check 'tokens' grep -q '^token-range .*e.bin:0: token 0 of sequence 0 is 257' out
err_has 'error: 3 findings'
expect 3 'one of a kind' gpt-dataset verify many --vocab-size 32 \
    --max-findings 1
check 'the others are counted' grep -q '^token-range *and [0-9]* more$' out
head -c 20 a.idx >short.idx && cp a.bin short.bin
expect 3 'a cut header' gpt-dataset verify short
expect 3 'info of it' gpt-dataset info short
err_has 'gpt-dataset verify'
expect 4 'no such set' gpt-dataset verify absent

# ---- merge, slice, head ----
same_set() { cmp "$1.bin" "$2.bin" && cmp "$1.idx" "$2.idx"; }
cat a.jsonl many.jsonl a.jsonl | pack whole
expect 0 'merge' gpt-dataset merge a many b --output-prefix merged --quiet
check 'as if packed at once' same_set merged whole
mkdir parts parts/deeper
for i in bin idx; do
    cp a.$i parts/a.$i
    cp many.$i parts/a.b.$i
    cp a.$i parts/b.$i
done
expect 0 'merge of a directory' gpt-dataset merge --input parts \
    --output-prefix merged2
check 'in the order of names' same_set merged2 whole
expect 7 'no set is replaced' gpt-dataset merge a --output-prefix b
expect 0 'unless forced' gpt-dataset merge a --output-prefix b --force
check 'a set alone stays as it is' same_set a b
expect 2 'an input is no output' gpt-dataset merge many a --output-prefix a \
    --force
err_has 'inputs are never modified'
check 'nor was it touched' same_set a b
expect 2 'nothing to merge' gpt-dataset merge --output-prefix x
expect 2 'sets and a directory' gpt-dataset merge a --input parts \
    --output-prefix x
expect 3 'a directory without sets' gpt-dataset merge --input parts/deeper \
    --output-prefix x
expect 4 'no directory' gpt-dataset merge --input absent --output-prefix x
expect 2 'no output' gpt-dataset merge a many
printf '\1\0\0\0\2\0\0\0' >wide.bin
printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\4\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' >wide.idx
expect 0 'a set of 32 bits' gpt-dataset verify wide
expect 3 'types must agree' gpt-dataset merge a wide --output-prefix x
err_has 'wide: tokens are of type I32, but those of a are of type U16'
expect 0 'cut into three' gpt-dataset slice whole --documents :2 \
    --output-prefix s1
expect 0 'the middle' gpt-dataset slice whole --documents 2:3003 \
    --output-prefix s2
expect 0 'the end' gpt-dataset slice whole --documents 3003: --output-prefix s3
expect 0 'merged again' gpt-dataset merge s1 s2 s3 --output-prefix whole2
check 'is the same' same_set whole whole2
expect 0 'head' gpt-dataset head whole -n 5 --output-prefix h
check 'the first documents' same_set h a
expect 2 'as head(1) takes a number' gpt-dataset head whole -3 --output-prefix h3
err_has "'-3' names no data set"
err_has 'write -n 3'
expect 2 'as tail(1) does' gpt-dataset cat whole -3
err_has '--tail 3 for the last ones'
expect 2 'a number where none is taken' gpt-dataset verify -3
err_has './-3 is a data set'
expect 0 'head of fewer' gpt-dataset head a --output-prefix h2
check 'all of them' same_set h2 a
expect 0 'of none' gpt-dataset head a -n 0 --output-prefix none
expect 0 'an empty set' gpt-dataset verify none
expect 0 'added to another' gpt-dataset merge none a none --output-prefix a2
check 'changes nothing' same_set a2 a
expect 2 'slice needs a range' gpt-dataset slice a --output-prefix x
expect 2 'of one set' gpt-dataset slice a b --documents 1:2 --output-prefix x
check 'nothing is left of failures' [ ! -e x.bin -a ! -e x.idx ]

# ---- repair ----
repairs() { # description prefix: exit 0, and the result is good
    rm -f r.bin r.idx
    expect 0 "repair: $1" gpt-dataset repair "$2" --output-prefix r
    check 'is good' gpt-dataset verify r
}
damage d idx 58 '\11\1\1'
repairs 'pointers' d
err_has '1 pointers were wrong'
check 'as it was' same_set r a
damage d idx 17 '\4'
repairs 'a type' d
check 'as it was' same_set r a
damage d idx 130 'more than that'
repairs 'bytes behind the index' d
check 'as it was' same_set r a
printf '\0\0' | cat a.bin - >d.bin && cp a.idx d.idx
repairs 'tokens behind the last sequence' d
check 'as it was' same_set r a
head -c 17 a.bin >d.bin
repairs 'a .bin that was cut' d
gpt-dataset slice a --documents :2 --output-prefix want --quiet
check 'ends with the last whole document' same_set r want
head -c 9 a.bin >d.bin
repairs 'a .bin that was cut behind a document' d
check 'keeps that document' same_set r want
damage d idx 90 '\4'
repairs 'documents in disorder' d
err_has '4 sequences become a document each'
# An old merge: its index has the documents of the first part only.
cat a.bin a.bin >d.bin
{
    printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\10\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0'
    head -c 50 a.idx | tail -c 16
    head -c 50 a.idx | tail -c 16
    gpt-dataset merge a b --output-prefix twice --quiet
    head -c 130 twice.idx | tail -c 64
    tail -c 48 a.idx
} >d.idx
found 'an old merge' d '"documents-missing":1'
repairs 'an old merge' d
gpt-dataset cat r | tail -n +6 >got.txt
printf '97 98 99 256\n100 101\n102 103 256\n104 256\n' >want.txt
check 'sequences become documents' cmp got.txt want.txt
# Lengths that do not count the end-of-document tokens: 3, 2 + 2, 1.
cp a.bin d.bin
{
    head -c 34 a.idx
    printf '\3\0\0\0\2\0\0\0\2\0\0\0\1\0\0\0'
    printf '\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0\12\0\0\0\0\0\0\0\16\0\0\0\0\0\0\0'
    tail -c 48 a.idx
} >d.idx
found 'ends that were not counted' d '"eod-length":1'
repairs 'ends that were not counted' d
check 'as it was' same_set r a
printf '\1' | dd of=d.bin bs=1 seek=20 conv=notrunc status=none
expect 3 'when they differ' gpt-dataset repair d --output-prefix x
expect 3 'verify recommends no repair then' gpt-dataset verify d
check 'but to make the set again' grep -q \
    'cannot be repaired: the tokens in question differ; make the set again' out
check 'and nothing else' sh -c '! grep -q "gpt-dataset repair" out'
damage d idx 58 '\11'
expect 0 'the index alone' gpt-dataset repair d --index-only --output-prefix i
check 'is written' [ -e i.idx -a ! -e i.bin ]
ln -s d.bin i.bin
check 'and fits the old tokens' gpt-dataset verify i
head -c 17 a.bin >d.bin
expect 2 'not when tokens must go' gpt-dataset repair d --index-only \
    --output-prefix x
expect 0 'nothing to do' gpt-dataset repair a --output-prefix x
err_has 'nothing is wrong'
damage d idx 34 '\377\377\377\377'
expect 3 'a negative length' gpt-dataset repair d --output-prefix x
err_has 'the length is not known; make the set again from its text'
damage d idx 17 '\6'
expect 3 'a floating type' gpt-dataset repair d --output-prefix x
damage d idx 0 'X'
expect 3 'another file' gpt-dataset repair d --output-prefix x
damage d idx 58 '\11'
expect 2 'itself' gpt-dataset repair d --output-prefix d --force
expect 2 'its index' gpt-dataset repair d --output-prefix d --force --index-only
check 'nothing is left of failures' [ ! -e x.bin -a ! -e x.idx ]

# ---- convert ----
words() { # little-endian integers of 64 bits
    for w; do
        printf "\\$(printf %o $((w & 255)))\\$(printf %o $((w >> 8 & 255)))"
        printf '\0\0\0\0\0\0'
    done
}
to() { # format from to option...
    gpt-dataset convert "$2" --to "$1" --output-prefix "$3" ${4:+"$4"} ${5:+"$5"}
}
{
    printf 'TNTIDX\0\0'
    words 1 8 2 4 4 6 # version, type, bytes, items, sizes, documents
    words 0 1 2 3 4
    words 0 4 6 9 11
    words 4 2 3 2
    words 0 1 1 3 4 4
} >want.idx
expect 0 'to TNTIDX' to tntidx a t
check 'its index' cmp t.idx want.idx
check 'its tokens' cmp t.bin a.bin
expect 0 'it is read directly, too' gpt-dataset slice t --documents 0:5 \
    --output-prefix t1
check 'as if it were the other' same_set t1 a
expect 3 'a report of damage wants the other' gpt-dataset verify t
expect 0 'from TNTIDX' to mmididx t t2
check 'as it was' same_set t2 a
words 4 4 9 11 11 >want.idx
expect 0 'to .ds' to ds a n
check 'its index' cmp n.ds.index want.idx
check 'its tokens' cmp n.ds a.bin
expect 0 'from .ds' to mmididx n n2
expect 0 'its documents' gpt-dataset cat n2
gpt-dataset cat a | tr '\t' ' ' >want.txt
check 'are the same' cmp out want.txt
expect 0 'to .ds again' to ds n2 n3
check 'as it was' cmp n.ds.index n3.ds.index
expect 0 'to llm.c' to llmc a l
{
    printf '\210\330\064\001\1\0\0\0\13\0\0\0'
    head -c 1012 /dev/zero
    cat a.bin
} >want.bin
check 'header and tokens' cmp l.bin want.bin
check 'and no index' [ ! -e l.idx ]
for f in bin idx; do cp a.$f beside.$f; done
echo '{}' >beside.json
echo 1 >beside.sources
expect 0 'to .ds beside another set' to ds a beside --force
check 'which stays, with what describes it' \
    [ -e beside.json -a -e beside.sources -a -e beside.idx ]
expect 0 'to llm.c in the place of that set' to llmc a beside --force
check 'which goes, with its index' \
    [ ! -e beside.json -a ! -e beside.sources -a ! -e beside.idx ]
expect 0 'from llm.c' to mmididx l l2
check 'the tokens' cmp l2.bin a.bin
expect 0 'in one document' gpt-dataset info l2 --json
out_has '"documents":1,"sequences":1,"tokens":11'
expect 0 'from llm.c with ends' to mmididx l l3 --eod 256
expect 0 'its documents' gpt-dataset cat l3
grep . want.txt >want
check 'are those that are not empty' cmp out want
expect 0 '32 bits to llm.c' to llmc wide w
expect 0 'and back' to mmididx w w2
check 'as it was' same_set w2 wide
expect 0 '32 bits to .ds' to ds wide w
expect 0 '32 bits to TNTIDX' to tntidx wide w3
expect 0 'and back' to mmididx w3 w4
check 'as it was' same_set w4 wide
mkdir alone && cp w.ds w.ds.index alone
expect 0 'from .ds' to mmididx alone/w w5
check 'as it was' same_set w5 wide
expect 0 'an empty one' to ds none e0
expect 0 'and back' to mmididx e0 e1
check 'is empty' same_set none e1
for from in t n l; do
    expect 7 "no file is replaced: $from" to mmididx $from b
done
for format in tntidx ds llmc; do
    touch old.bin old.ds
    expect 7 "$format: no file is replaced" to $format a old
done
expect 2 'an input is no output' to tntidx a a --force
expect 2 'nor the other way' to mmididx t t --force
expect 2 'a .ds neither' to ds n n --force
expect 2 'documents are known' to mmididx a x --eod 256
expect 2 'an unknown format' to parquet a x
expect 4 'no such set' to ds absent x
refused() { # file offset escapes what: a foreign file changed, then read
    rm -rf bad && mkdir bad && cp t.* l.bin n.ds n.ds.index bad/
    [ "${1%%.*}" = t ] || rm bad/t.*
    printf "$3" | dd of="bad/$1" bs=1 seek="$2" conv=notrunc status=none
    expect 3 "refused: $4" to mmididx "bad/${1%%.*}" x
}
refused t.idx 8 '\2' 'version of TNTIDX'
refused t.idx 16 '\6' 'floating TNTIDX'
refused t.idx 24 '\4' 'element size'
refused t.idx 32 '\377\377\377\377\377\377\377\177' 'items'
refused t.idx 40 '\5' 'sizes'
refused t.idx 48 '\7' 'documents'
refused t.idx 64 '\2' 'items of two dimensions'
refused t.idx 104 '\5' 'an offset'
refused t.idx 136 '\377\377\377\377\377\377\377\377' 'a negative size'
refused t.idx 176 '\2' 'documents that fall'
refused t.idx 208 '\3' 'a last document'
refused t.idx 216 '\0' 'a TNTIDX that is too long'
refused n.ds.index 8 '\3' 'ends that fall'
refused n.ds.index 32 '\12' 'a .ds that is too long'
refused n.ds.index 40 '\0' 'half an end'
refused l.bin 0 '\0' 'another magic'
refused l.bin 4 '\2' 'another version'
refused l.bin 8 '\12' 'another count'
refused l.bin 1046 '\0' 'half a token'
rm -rf bad && mkdir bad && head -c 50 t.idx >bad/t.idx && cp t.bin bad
expect 3 'refused: half a header' to mmididx bad/t x
head -c 1000 l.bin >bad/l.bin
expect 3 'refused: half a header of llm.c' to mmididx bad/l x
check 'nothing is left of failures' [ ! -e x.bin -a ! -e x.idx ]

# ---- index ----
echo '{"tokenizer":{"class":"test","tokenizer_path":["v"]}}' >like
index() { # samples... ; writes caches/
    gpt-dataset index many --tokenizer-like like --seq-length 2048 \
        --split 50,1,49 --data-cache-path caches --num-samples "$@"
}
expect 0 'index' index 40 20
(cd caches && cksum ./* | sed 's|\./||') >out
check "the files are Megatron's" \
    diff out "$top/tests/golden/dataset/caches.cksum"
expect 7 'they are not replaced' index 40
expect 0 'unless forced' index 40 20 --force
(cd caches && cksum ./* | sed 's|\./||') >out
check 'and then the same' diff out "$top/tests/golden/dataset/caches.cksum"
expect 0 'another number of samples' index 0
check 'has another name' [ "$(ls caches | wc -l)" = 12 ]
check 'and says null' grep -q '"num_samples": null' caches/*description.txt
expect 0 'beside the data, as Megatron does' gpt-dataset index many \
    --tokenizer-like caches/ac91*description.txt --seq-length 2048 \
    --split 100,0,0 --num-samples 40 20
check 'in its directory' [ "$(ls many/cache/GPTDataset_indices | wc -l)" = 4 ]
err_has 'split 1 has no share'
expect 2 'no tokenizer' gpt-dataset index many --num-samples 1
expect 2 'no samples' gpt-dataset index many --tokenizer-like like
expect 2 'too many' index 1 2 3 4
expect 2 'not a number' index many
expect 3 'too few tokens' gpt-dataset index a --tokenizer-like like \
    --num-samples 1 --data-cache-path x
expect 3 'no JSON' gpt-dataset index a --tokenizer-like a.idx --num-samples 1
echo '{"tokenizer":1}' >unlike
expect 3 'no tokenizer in it' gpt-dataset index a --tokenizer-like unlike \
    --num-samples 1
check 'nothing is left of failures' [ ! -e x ]

# ---- usage ----
expect 2 'nothing to do' gpt-dataset
expect 2 'an unknown command' gpt-dataset verfy a
err_has 'none of info, stat, cat, verify, '
err_has "did you mean 'verify'?"
expect 2 'no set' gpt-dataset info
expect 2 'an option of another command' gpt-dataset info a --top 3
err_has 'info takes no --top'
check 'inputs are as they were' same_set a b
# Two damages at once: lengths that leave the ends out, documents that are
# missing. The ends that there is room for are those of two documents alone.
perl -e 'print "MMIDIDX\0\0", pack("Q<C", 1, 8), pack("Q<Q<", 50000, 3),
    pack("l<", 1) x 50000, pack("q<*", map { 2 * $_ } 0 .. 49999),
    pack("q<*", 0, 1, 2)' >both.idx
head -c 100004 /dev/zero >both.bin
expect 3 'lengths and documents are wrong' gpt-dataset repair both \
    --output-prefix both2
err_has 'lengths are wrong as well; merge the parts again'
expect 3 'verify says the same' gpt-dataset verify both
check 'in the same words' grep -q 'lengths are wrong as well; merge the' out
check 'and recommends no repair' sh -c '! grep -q "gpt-dataset repair" out'

# ---- names that a terminal would obey ----
odd=$(printf 'n\nl\033[31m\201')
cp a.idx "$odd.idx"
cp a.bin "$odd.bin"
for what in info stat verify; do
    expect 0 "a name with control characters: $what" gpt-dataset $what "$odd"
    out_has 'n\x0al\x1b[31m\x81'
    check 'is one line' sh -c '! grep -q "^l" out'
done
head -c 40 a.idx >"$odd.idx"
expect 3 'and in a finding' gpt-dataset verify "$odd"
out_has 'n\x0al\x1b[31m\x81.idx'
rm "$odd".*

# ---- another program cuts a .bin that is read ----
preload=$BUILD/tests/lib/preload.so
cut() { # nth-map what command...: the .bin is cut when it has been mapped
    nth=$1
    shift
    expect 4 "$1" env LD_PRELOAD="$preload" GPT_PRELOAD="mmap:$nth:CUT" \
        gpt-dataset "$2" cut $3
    err_has "cannot read 'cut.bin': a page of it is gone"
}
if [ -f "$preload" ] && LD_PRELOAD=$preload GPT_PRELOAD=count \
    gpt-dataset --version 2>&1 | grep -q '^preload: open'; then
    cp a.idx cut.idx
    cp a.bin cut.bin
    cut 2 'while it is verified' verify '--eod 256'
    printf '\0\0\0\0\0\0' | cat a.bin - >cut.bin
    cut 2 'while it is repaired' repair '--output-prefix x'
    for what in info 'verify' 'repair --output-prefix x' 'cat'; do
        cp a.idx cut.idx
        cp a.bin cut.bin
        # shellcheck disable=SC2086 # a word list
        expect 4 "an .idx that is cut: $what" env LD_PRELOAD="$preload" \
            GPT_PRELOAD="mmap:1:CUT" gpt-dataset ${what%% *} cut \
            ${what#"${what%% *}"}
        err_has "cannot read 'cut.idx': a page of it is gone"
        err_has 'hint: another process has cut the file, or its disk fails'
    done
    rm cut.idx
    cp l.bin cut.bin
    cut 1 'while it is converted' convert '--eod 256 --output-prefix x'
    check 'nothing is written' [ ! -e x.bin ]
else
    skip 'LD_PRELOAD of tests/lib/preload.c has no effect here'
fi
tap_done
