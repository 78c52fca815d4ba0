#!/bin/sh
# gpt-dataset: what it says of sets that are known byte by byte, what it finds
# in sets that are damaged on purpose, and what it makes of them.
. "$(dirname "$0")/../lib/tap.sh"

bytes='--tokenizer-type ByteTokenizer'

pack() { # prefix: JSON lines on stdin
    cat >"$1.jsonl"
    gpt-preprocess --input "$1.jsonl" --output-prefix "$1" $bytes \
        --append-eod --quiet &&
        mv "$1_text_document.bin" "$1.bin" && mv "$1_text_document.idx" "$1.idx"
}
# A copy that is then damaged: number of bytes as little-endian octal escapes.
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
for range in x 2:1 -1: 3:x '' 99999999999999999999; do
    expect 2 "no range: '$range'" gpt-dataset cat a --documents "$range"
done
expect 2 'no vocabulary, no end' gpt-dataset cat a --strip-eod
printf '{"text":"\\u00e9\\u4e16\\ud83d\\ude00 \\" \\\\ \\n \\u0001"}\n' | pack u
expect 0 'text beyond ASCII' gpt-dataset cat u $bytes --jsonl --strip-eod
printf '{"document":0,"text":"\303\251\344\270\226\360\237\230\200 \\" \\\\ \\n \\u0001"}\n' >want
check 'is UTF-8' cmp out want
# The same with its bytes cut, so that characters end early.
printf '\303\000\251\000\344\000\270\000\303\000\251\000\377\000\360\000\000\001' >c.bin
printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\4\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' >c.idx
expect 0 'characters that are cut' gpt-dataset cat c $bytes --jsonl --strip-eod
printf '{"document":0,"text":"\303\251\357\277\275\357\277\275"}\n{"document":1,"text":"\303\251\357\277\275\357\277\275"}\n' >want
check 'become U+FFFD' cmp out want

# ---- verify ----
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
gpt-dataset verify d >out
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

# ---- usage ----
expect 2 'nothing to do' gpt-dataset
expect 2 'an unknown command' gpt-dataset verfy a
err_has "did you mean 'verify'?"
expect 2 'no set' gpt-dataset info
expect 2 'an option of another command' gpt-dataset info a --top 3
err_has 'info takes no --top'
check 'inputs are as they were' cmp a.idx b.idx
tap_done
