#!/bin/sh
# gpt-report: metrics and logs in, a page, text and tables out.
. "$(dirname "$0")/../lib/tap.sh"

# ---- a run whose numbers are known: the loss falls from 10 to 1 ----
mkdir run
awk 'BEGIN {
    for (i = 1; i <= 100; i++) {
        printf "{\"iteration\":%d,\"consumed_samples\":%d,\"lm_loss\":%.9g,", \
            i, 8 * i, 10 - (i - 1) / 11
        printf "\"learning_rate\":0.001,\"grad_norm\":%s,", \
            i == 50 ? "null" : 1 + i % 7
        printf "\"elapsed_ms\":%d,\"tokens_per_second\":1000,", i == 1 ? 900 : 100
        printf "\"gflops\":500,\"skipped_iterations\":%d,\"my_own\":%d}\n", \
            i == 50, i * i
        if (i % 20 == 0)
            printf "{\"iteration\":%d,\"validation_loss\":%.9g}\n", i, \
                i == 80 ? 2 : 12 - i / 10
    }
}' >run/metrics.jsonl
sed 's/"lm_loss":/"lm_loss":1/' run/metrics.jsonl >other.jsonl

# ---- a name that is no UTF-8 ----
odd=$(printf 'run \377<\303\244')
expect 0 'a page of it' gpt-report "$odd=run" --output odd.html
check 'is UTF-8' sh -c 'iconv -f UTF-8 -t UTF-8 odd.html >odd'
check 'has a mark for the byte, and all else' \
    test "$(grep -o '<title>.*</title>' odd.html)" = \
    "<title>$(printf 'run \357\277\275&#60;\303\244')</title>"
check 'as its numbers have' grep -q "\"name\":\"run .*u003c" odd.html

# ---- tables ----
expect 0 'results as JSON' gpt-report run --json
printf '%s' '{"name":"run","file":"run/metrics.jsonl","iteration":100,' >want
printf '%s' '"consumed_samples":800,"seconds":10.8,"lm_loss":1,' >>want
printf '%s' '"validation_loss":2,"best_validation_loss":2,' >>want
printf '%s' '"best_iteration":80,"test_loss":null,' >>want
printf '%s' '"tokens_per_second":1000,"elapsed_ms":100,"mfu":null,' >>want
printf '%s\n' '"skipped_iterations":1,"restarts":0,"lines_without_loss":0}' >>want
check 'they are those of the lines' cmp out want
expect 0 'the utilization' gpt-report run --json --peak-tflops 2
out_has '"mfu":0.25'
expect 0 'every value as CSV' gpt-report 'a,"b=run' --csv
check 'the head' test "$(head -n 1 out)" = "run,iteration,samples,seconds,\
lm_loss,learning_rate,grad_norm,elapsed_ms,tokens_per_second,gflops,\
skipped_iterations,my_own,validation_loss"
check 'a row, and a name that needs quotes' \
    test "$(sed -n 21p out)" = '"a,""b",20,160,2.8,8.27272727,0.001,7,100,1000,500,0,400,'
check 'a validation' test "$(sed -n 22p out)" = '"a,""b",20,160,2.8,,,,,,,,,10'
check 'null is empty' test "$(sed -n 53p out)" = '"a,""b",50,400,5.8,5.54545455,0.001,,100,1000,500,1,2500,'
check 'a row a line' test "$(wc -l <out)" = 106
printf '{"iteration":60,"elapsed_ms":100,"restarts":0}\n' >first.jsonl
printf '{"iteration":70,"elapsed_ms":50,"restarts":0}\n' >>first.jsonl
expect 0 'a log line for many steps' gpt-report first.jsonl --json
out_has '"seconds":6.5,'
sed -i 's/"restarts":0/"restarts":1/' first.jsonl
expect 0 'and one of which that is not known' gpt-report first.jsonl --json
out_has '"seconds":0.6,'

# ---- what other programs write ----
cat >deepspeed.log <<'END'
{'zero_stage': 1}
 iteration       10/  1000 | consumed samples: 80 | consumed tokens: 163840 | elapsed time per iteration (s): 2.50 | lm loss: 9.5E+00 | samples per second: 3.200 |
 iteration       20/  1000 | consumed samples: 160 | consumed tokens: 327680 | elapsed time per iteration (s): 1.50 | lm loss: 9.0E+00 | samples per second: 5.333 |
END
expect 0 'a log that begins with a brace, and has seconds' \
    gpt-report deepspeed.log --json
out_has '"seconds":17.5,"lm_loss":9,'
out_has '"elapsed_ms":2000,'
expect 0 'its samples a second' gpt-report deepspeed.log --csv
out_has ',elapsed_ms,lm_loss,samples_per_second'
printf '{\n  "log_history": []\n}\n' >trainer_state.json
expect 3 'a file of Transformers' gpt-report trainer_state.json
err_has 'trainer_state.json:1:'
err_has "jq -c '.log_history[]"
echo 'step 0: loss 10.9' >nano.log
expect 3 'another log' gpt-report nano.log
err_has 'logs of gpt-train, Megatron-LM, nanoGPT and llm.c are read'
cat >nano.log <<'END'
tokens per iteration will be: 480
step 0: train loss 10.9, val loss 10.8
iter 0: loss 10.9012, time 1234.5ms, mfu -100.00%
iter 10: loss 9.5, time 234.5ms, mfu 12.50%
step 20: train loss 8.9, val loss 8.75
END
expect 0 'a log of nanoGPT' gpt-report nano.log --csv
check 'losses' grep -q ',10,.*,9.5' out
check 'validations' grep -q ',20,.*,8.75' out
check 'no utilization below 0' sh -c '! grep -e -100 out'
printf 's:0 tel:10.9\ns:0 trl:10.8 lr:1e-4 norm:3.2\ns:9 trl:7.25\n' >main.log
expect 0 'a log of llm.c' gpt-report main.log --csv
check 'its losses' grep -q ',9,.*,7.25' out
check 'samples and seconds, which it lacks, are empty' \
    grep -qx 'main.log,0,,,10.9,.*' out
cat >printed.log <<'END'
val loss 11.02
step    1/19560 | loss 11.010068 (+nanz)| norm 15.3 (+nanz)| lr 8.57e-07 | 3000.10 ms | -100.0% bf16 MFU | 174000 tok/s
step    2/19560 | train loss 10.5 | norm 2.5 | lr 1.71e-06 | 300.50 ms | 45.2% bf16 MFU | 160000 tok/s
step 3: train loss 10.25 (took 400.000000 ms)
val loss 10.95
END
expect 0 'what llm.c prints' gpt-report printed.log --csv
printf '%s\n' run,iteration,samples,seconds,validation_loss,lm_loss,grad_norm,\
learning_rate,elapsed_ms,tokens_per_second,'mfu (%)' \
    printed.log,0,,0,11.02,,,,,, \
    printed.log,1,,3.0001,,11.010068,15.3,8.57e-07,3000.1,174000, \
    printed.log,2,,3.3006,,10.5,2.5,1.71e-06,300.5,160000,45.2 \
    printed.log,3,,3.7006,,10.25,,,400,, \
    printed.log,3,,3.7006,10.95,,,,,, >want
check 'every number of it' cmp want out
printf '%s\n' '{"iteration":1,"lm_loss":9,"validation_loss":null}' \
    '{"iteration":1,"lm_loss":null,"validation_loss":8}' >eval.jsonl
expect 0 'a validation without a loss of steps' gpt-report eval.jsonl --json
out_has '"lines_without_loss":0'
printf '\30\0\0\0\0\0\0\0crc1\11time....\32\15brain.Event:2crc2%64s' x >events
expect 3 "a file of TensorBoard's" gpt-report events
err_has 'name metrics.jsonl of the run, or its log'

# ---- text ----
expect 0 'text' gpt-report run --text --width 60 --height 5 --ascii
check 'it keeps to the width' awk 'length() > 60 { exit 1 }' out
out_has 'validation 2.0000'
out_has 'Loss (nats a token): a run lm_loss, b run validation_loss'
check 'the curve falls from the left to the right' awk '
    /^Loss/ { loss = 1; next }
    loss && /[+|]/ { line++; at[line] = index($0, "a") }
    line == 5 { exit !(at[1] == 14 && at[4] > at[3] && at[3] > at[1]) }' out
out_has my_own
expect 0 'braille' gpt-report run --text --width 80
check 'dots' grep -q "$(printf '\342\240')" out
printf '{"iteration":%d,"lm_loss":null}\n' 1 2 >gap.jsonl
expect 0 'a loss that is no number' gpt-report gap.jsonl --text
check 'is not drawn' sh -c "! grep -q '$(printf '\342\240')' out"
cat >python.jsonl <<'X'
{"iteration":1,"lm_loss":3.5,"note":"NaN\"NaN"}
{"iteration":2,"lm_loss":NaN,"grad_norm":-Infinity}
{"iteration":3,"lm_loss":Infinity,"grad_norm":2}
X
expect 0 'numbers that Python writes' gpt-report python.jsonl --csv
check 'no line is skipped' test "$(wc -l <out)" = 4 -a ! -s err
expect 0 'lines that have no loss' gpt-report python.jsonl --json
out_has '"lm_loss":3.5,'
out_has '"lines_without_loss":2'
echo ' iteration 1/ 9 | number of nan iterations: 1 |' >nan.log
echo ' validation loss at iteration 1 | lm loss value: NAN | ' >>nan.log
expect 0 'and lines of a log' gpt-report nan.log --json
out_has '"lines_without_loss":1'
expect 0 'whose perplexity is no number' gpt-report nan.log --csv
check 'is empty' grep -q ',,$' out
expect 0 'in colours' gpt-report run other.jsonl --text --color always
check 'each has one' grep -q "$(printf '\033')\[34m" out
expect 0 'bits a byte' gpt-report run --text --ascii --bytes-per-token 4
out_has 'Bits a byte'
expect 0 'smooth and logarithmic' gpt-report run --text --smoothing 0.9 --log

# ---- what runs are ----
cat >train.log <<'X'
 > padded vocab
[rank 0]:  iteration        1/       3 | consumed samples:            4 | elapsed time per iteration (ms): 452.0 | learning rate: 9.800E-04 | global batch size:     4 | lm loss: 1.086052E+01 | loss scale: 1.0 | grad norm: 1.901 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-01-01 10:00:00] iteration        2/       3 | consumed samples:            8 | elapsed time per iteration (ms): 322.0 | throughput per GPU (TFLOP/s/GPU): 1.5 | lm loss: 1.077073E+01 |
---------------
 validation loss at iteration 2 | lm loss value: 9.5E+00 | lm loss PPL: 1.3E+04 |
 validation loss at iteration 2 on test set | lm loss value: 9.6E+00 | lm loss PPL: 1.4E+04 |
X
expect 0 'a log of Megatron-LM' gpt-report train.log --json
for number in '"iteration":2' '"lm_loss":10.77073' '"validation_loss":9.5' \
    '"test_loss":9.6' '"consumed_samples":8' '"seconds":0.774'; do
    out_has "$number"
done
cat train.log train.log >twice.log
expect 0 'a log that goes back' gpt-report twice.log --json
out_has '"restarts":1'
{ cat run/metrics.jsonl; printf '{"iteration":101,"lm_'; } >growing.jsonl
expect 0 'a line that is being written' gpt-report growing.jsonl --json
out_has '"iteration":100'
: >empty.jsonl
expect 0 'no line yet' gpt-report empty.jsonl --json
err_has 'empty.jsonl: no metrics yet'

# ---- mistakes ----
expect 2 'no run' gpt-report
err_has 'gpt-report DIR shows the run'
expect 4 'no such run' gpt-report nowhere
err_has 'a run is a directory of gpt-train --save'
echo 'hello' >hello.txt
expect 3 'another file' gpt-report hello.txt
err_has 'hello.txt: no line of metrics'
{ head -n 2 run/metrics.jsonl; echo '{"iteration":3,'; } >broken.jsonl
{ cat broken.jsonl; sed -n '3,$p' run/metrics.jsonl; } >middle.jsonl
expect 0 'the rest of the run' gpt-report run --json
cp out whole
expect 0 'a broken line' gpt-report run=middle.jsonl --json
err_has 'warning: middle.jsonl:3: '
err_has '1 line is skipped'
# The end of a name is another run's name: each is warned of.
: >new.jsonl
: >drawn
: >a-new.jsonl
(gpt-report middle.jsonl a-new.jsonl new.jsonl --follow --interval 0.1 \
    >drawn 2>said & echo $! >pid
    wait)&
drawn_again() { [ "$(grep -c '^middle.jsonl' drawn)" -ge 3 ]; }
until_true 60 drawn_again
kill "$(cat pid)"
wait
check '--follow draws again' drawn_again
check 'and says so once' test "$(grep -c 'is skipped' said)" = 1
check 'of each run' test "$(grep -c 'new.jsonl: no metrics yet' said)" = 2
sed -i 's/middle.jsonl/run\/metrics.jsonl/' out
check 'costs that line alone' cmp whole out
{ head -n 1 run/metrics.jsonl; echo '{"iteration":24,"test_loss":3}'; } >last
expect 0 'a test after the last loss' gpt-report last --json
check 'iteration, samples and loss are of one line' \
    grep -q '"iteration":1,"consumed_samples":8,.*"test_loss":3' out
tail -n 1 broken.jsonl >only.jsonl
expect 3 'nothing but broken lines' gpt-report only.jsonl --json
err_has 'only.jsonl:1'
echo '{"step":3}' >step.jsonl
expect 3 'no iteration' gpt-report step.jsonl
err_has 'step.jsonl:1'
expect 2 'standard input twice' gpt-report --json - run -
err_has 'the list of runs names standard input twice'
expect 2 'standard input again and again' gpt-report --follow -
err_has 'can be read once'
expect 2 'two kinds' gpt-report run --csv --json
err_has '--text, --follow, --csv and --json exclude each other'
err_has 'give one of them'
for name in x.csv x.CSV x.jsonl x.txt; do
    expect 2 "a page called $name" gpt-report run --output "$name"
    err_has "--output: $name would be a page of HTML"
    check 'which is not written' test ! -e "$name"
done
expect 0 'a table called as one likes' gpt-report run --csv -o table.txt
refused() { # reason, options...
    why=$1
    shift
    expect 2 "no effect: $*" gpt-report run "$@"
    err_has "has no effect here: $why"
}
for option in '--title x' '--points 9' '--plan x' '--timeline x'; do
    # shellcheck disable=SC2086 # words
    refused 'only a page has it' --csv $option
done
for option in '--width 50' '--height 4' --ascii; do
    # shellcheck disable=SC2086 # words
    refused 'it is for --text and --follow' $option
done
refused 'it is for --follow' --text --interval 1
refused '--csv and --json have values as they are' --csv --smoothing 0.5
refused '--csv and --json have no axis' --json --log
refused '--json has no bits a byte' --json --bytes-per-token 4
expect 2 'a file while it follows' gpt-report run --follow --output x
expect 0 'a page' gpt-report run
expect 7 'which exists' gpt-report run
err_has report.html
expect 0 'is replaced' gpt-report run --force
cp report.html before.html
expect 2 'an input is not replaced' gpt-report run --timeline report.html \
    --output report.html -f
check 'it is as it was' cmp report.html before.html

# ---- the page ----
cat >line.svg <<'X'
<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>
X
echo 'total <80> bytes & more' >plan.txt
expect 0 'two runs, a schedule and a plan' gpt-report '<b>&=run' \
    two=other.jsonl --title 'A "title" </script>' --timeline line.svg \
    --plan plan.txt --output two.html --points 16
check 'names are text' grep -q '<th scope="row">&#60;b&#62;&#38;</th>' two.html
check 'the title, too' \
    grep -q '<h1>A &#34;title&#34; &#60;/script&#62;</h1>' two.html
check 'the plan' grep -q 'total &#60;80&#62; bytes &#38; more' two.html
check 'a schedule is an image' grep -q 'src="data:image/svg+xml,%3Csvg' two.html
check 'two scripts and no other end of one' \
    test "$(grep -c '</script>' two.html)" = 2
check 'nothing is loaded' sh -c "! grep -E '(src|href)=\"?(http|/|\\.)' two.html"
check 'browsers may not load anything' \
    grep -q "default-src 'none'" two.html
check 'long curves are thinned' \
    sh -c "grep -o '\"lm_loss\":{\"x\":\\[[0-9,]*' two.html | head -n 1 |
        awk -F, '{ exit !(NF >= 8 && NF <= 16) }'"

# Smooth values of a constant differ in their last digits; the ends of the range
# of numbers differ by more than any number.
line='{"iteration":%d,"%s":%s}\n'
for i in 1 2 3 4 5 6 7 8; do
    # shellcheck disable=SC2059 # a format
    printf "$line" $i learning_rate 0.001 >>constant.jsonl
    # shellcheck disable=SC2059
    printf "$line" $i huge "$([ $((i % 2)) = 0 ] || printf -)1e308" >>huge.jsonl
done
expect 0 'a constant, smoothed' gpt-report constant.jsonl --text --ascii \
    --smoothing 0.6
check 'is a line' test "$(grep -c '[|+]a*aaa' out)" = 1
expect 0 'the largest numbers' gpt-report huge.jsonl --text
out_has '     1e+308 +'
out_has '    -1e+308 +'
check 'every label is a number' sh -c '! grep -qi "nan\|inf" out'
if command -v node >/dev/null; then
    cat >axes.js <<'X'
const src = require("fs").readFileSync(process.argv[2], "utf8");
const made = ["makeScale", "ticks", "smooth", "bounds"].map(name => {
    const at = src.indexOf(`function ${name}(`);
    return src.slice(at, src.indexOf("\n}\n", at) + 3);
}).join("");
const state = {logX: false, logY: false};
const f = new Function("state", made + "return {makeScale, ticks, smooth, bounds};")(state);
const push = Array.prototype.push;
let count = 0;
Array.prototype.push = function(...all) {
    if (++count > 100) { console.log("endless"); process.exit(1); }
    return push.apply(this, all);
};
for (const y of [f.smooth(Array(100).fill(0.001), 0.6), [-1e308, 1e308], [1, 2]]) {
    const x = y.map((v, i) => i), all = f.bounds([{x, y}], null);
    const scale = f.makeScale(...all.y, false, 274, 10);
    count = 0;
    const good = f.ticks(scale, 5).length > 1 && f.ticks(scale, 5).every(isFinite) &&
        y.map(scale.place).every(at => at > 10 && at < 274);
    if (!good) { console.log(y.slice(0, 2), all); process.exit(1); }
}
f.ticks(f.makeScale(50000, 50000 + 1e-11, false, 0, 1), 5); // zoomed in
X
    check 'axes of the page end' timeout 20 node axes.js \
        "$top/share/report/page.js"
else
    skip 'no node: axes are not computed' || :
fi

browser=
for b in chromium chromium-browser google-chrome; do
    command -v $b >/dev/null && browser=$b
done
# The page after a script that acts as a user has run in it.
dom() { # page script
    { cat "$1"; printf '<script>%s</script>\n' "$2"; } >acted.html
    # shellcheck disable=SC2046 # no word when not root
    timeout 120 "$browser" --headless --disable-gpu \
        $([ "$(id -u)" = 0 ] && echo --no-sandbox) \
        --user-data-dir="$scratch/browser" --virtual-time-budget=3000 \
        --dump-dom "file://$scratch/acted.html" >dom.html 2>browser.log
}
curve() { # field: of the first chart that has it, the points
    grep -o '<path[^>]*>' dom.html | grep "data-field=\"$1\"" | head -n 1 |
        sed 's/.* d="//; s/".*//' | tr 'ML' '\n\n' | sed 1d
}
if [ -z "$browser" ] || ! dom report.html ''; then
    skip 'no chromium: the page is not opened' || :
else
    check 'no message of the browser about the page' \
        sh -c '! grep -i "CONSOLE" browser.log'
    curve lm_loss >points
    check 'a point a value' test "$(wc -l <points)" = 100
    # The borders of page.js: 62 to 628 across, 274 to 10 down; 4 % of room.
    check 'curves are drawn from the numbers' awk -F, '{
        x = 62 + (NR - 1) / 99 * 566
        v = 10 - (NR - 1) / 11
        low = 1 - 0.04 * 9; high = 10 + 0.04 * 9
        y = 274 + (v - low) / (high - low) * (10 - 274)
        if ($1 - x > 0.02 || x - $1 > 0.02 || $2 - y > 0.02 || y - $2 > 0.02)
            exit 1
    }' points
    check 'a value that is missing is a gap' test "$(grep -o '<path[^>]*>' \
        dom.html | grep 'data-field="grad_norm"' | grep -o 'M' | wc -l)" = 2
    check 'a metric of its own has a chart' \
        grep -q 'data-title="my_own"' dom.html
    check 'a reader of screens hears the last value' \
        grep -q 'aria-label="Loss in nats a token. run lm_loss: last 1, least 1' \
        dom.html
    dom two.html '
        const press = key => document.querySelector("svg.chart").dispatchEvent(
            new KeyboardEvent("keydown", {key}));
        press("+"); press("ArrowRight");
        const axis = document.getElementById("smoothing");
        axis.value = 0.5; axis.dispatchEvent(new Event("input"));'
    check 'two runs are compared' \
        test "$(grep -o 'data-run="[^"]*" data-field="lm_loss"' dom.html |
            sort -u | wc -l)" = 2
    check 'keys zoom, and move' grep -q \
        'data-title="Loss"[^>]*data-from="38.125" data-to="87.625"' dom.html
    check 'in all charts' grep -q \
        'data-title="my_own"[^>]*data-from="38.125" data-to="87.625"' dom.html
    check 'values are faint behind smooth ones' grep -q 'class="raw"' dom.html
    dom two.html '
        const axis = document.getElementById("axis");
        axis.value = "samples"; axis.dispatchEvent(new Event("change"));
        document.querySelector("#legend input").click();'
    check 'samples as the axis' grep -q \
        'data-title="Loss"[^>]*data-from="8" data-to="800"' dom.html
    check 'a run that is not shown' \
        test "$(grep -o 'data-run="[^"]*"' dom.html | sort -u)" = 'data-run="two"'
fi

# ---- a terminal ----
if command -v tmux >/dev/null && locale -a 2>/dev/null | grep -qi '^c.utf'; then
    shows() { # file text
        LC_ALL=C.UTF-8 tmux -S "$socket" capture-pane -p >"$1"
        grep -q "$2" "$1"
    }
    for columns in 80 200; do
        socket=$scratch/tmux-$columns
        LC_ALL=C.UTF-8 tmux -u -S "$socket" -f /dev/null new-session -d \
            -x $columns -y 100 "gpt-report run --follow --interval 0.2"
        until_true 60 shows pane-$columns my_own
        check "$columns columns: every chart" grep -q '^my_own' pane-$columns
        check "$columns columns: curves fill the width" \
            grep -q "+-\\{$((columns - 14))\\}\$" pane-$columns
        if [ $columns = 80 ]; then
            echo '{"iteration":7777,"my_late_field":1}' >>run/metrics.jsonl
            until_true 60 shows pane my_late_field
            check 'a line that is added is drawn' grep -q my_late_field pane
        fi
        tmux -S "$socket" kill-server
    done
else
    skip 'no tmux: nothing is drawn in a terminal' || :
fi
tap_done
