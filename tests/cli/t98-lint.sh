#!/bin/sh
# The sources keep the rules of the house (tests/lib/lint.pl, headers.sh), and
# each rule is seen to fail on a tree that breaks it.
. "$(dirname "$0")/../lib/tap.sh"
lint=$top/tests/lib/lint.pl

if [ ! -d "$top/common" ] || ! command -v perl >/dev/null; then
    skip 'needs the sources and perl'
    tap_done
fi

perl "$lint" -C "$top" >found 2>&1
check 'the sources are read' grep -q '^# comments common/base ' found
none() { ! grep "^$1: " found; }
for rule in order cycles options tags blanks sizeof typedef rc ladder names \
    prose comments budget calls includes align pairs files; do
    check "rule kept: $rule" none "$rule"
done
check 'headers compile, alone and together' sh "$top/tests/lib/headers.sh"

# ---- a tree that keeps all rules, then one change at a time ----
make_tree() {
    rm -rf tree
    mkdir -p tree/common/base tree/common/text tree/kernels/cpu tree/cmd/a \
        tree/cmd/b tree/tests/lib
    (
        cd tree || exit 1
        cat >common/base/low.h <<'END'
/* Low. */
#ifndef LOW_H
#define LOW_H
struct gpt_low { int a; };
int gpt_low(int a);
#endif
END
        cat >common/base/low.c <<'END'
/* Low: the program adds options such as -f by name. */
#include "base/low.h"

/* Why. */
int gpt_low(int a)
{
    int status = a;

    return status;
}
END
        cat >common/text/high.c <<'END'
/* High. */
#include "base/low.h"

int gpt_high(int a);

/* Why. */
int gpt_high(int a)
{
    return gpt_low(a) + (int)sizeof(a);
}
END
        echo '#include "text/high.h"' >cmd/a/own.h
        echo 'int gpt_high(int a);' >common/text/high.h
        echo '/* Door. */' >kernels/backend.h
        echo '/* Inner. */' >kernels/cpu/cpu.h
    )
}
lint_finds() { # rule text description; the tree was changed
    expect 1 "$1: $3" perl "$lint" -C tree "$1" && out_has "$2"
    make_tree
}
make_tree
expect 0 'a tree that keeps all rules' perl "$lint" -C tree
check 'its headers compile' sh "$top/tests/lib/headers.sh" tree

echo '#include "text/high.h"' >>tree/common/base/low.c
lint_finds order 'common/base/low.c:11: must not include common/text/high.h' \
    'a folder includes a later one'
echo '#include "cpu/cpu.h"' >>tree/common/text/high.c
lint_finds order 'must not include kernels/cpu/cpu.h' \
    'a folder passes the door of kernels'
echo '#include "cmd/a/own.h"' >tree/cmd/b/main.c
lint_finds order 'cmd/b/main.c:1: must not include cmd/a/own.h' \
    'a program includes another'
echo '#include "text/high.h"' >>tree/kernels/cpu/cpu.h
lint_finds order 'must not include common/text/high.h' \
    'kernels include more than base'
mkdir -p tree/common/checkpoint/torch tree/common/checkpoint/gguf
echo '#include "base/low.h"' >tree/common/checkpoint/plan.h
echo '#include "checkpoint/plan.h"' >tree/common/checkpoint/torch/torch.h
echo '#include "checkpoint/torch/torch.h"' >tree/common/checkpoint/gguf/gguf.h
expect 0 'a format includes a container of files' perl "$lint" -C tree order
echo '#include "checkpoint/gguf/gguf.h"' >tree/common/checkpoint/torch/zip.h
lint_finds order 'must not include common/checkpoint/gguf/gguf.h' \
    'a container of files includes a format'
mkdir -p tree/common/checkpoint/pth tree/common/checkpoint/gguf
echo '#include "base/low.h"' >tree/common/checkpoint/pth/pth.h
echo '#include "checkpoint/pth/pth.h"' >tree/common/checkpoint/plan.h
lint_finds order 'must not include common/checkpoint/pth/pth.h' \
    'what all formats share includes one'
mkdir -p tree/common/checkpoint/pth tree/common/checkpoint/gguf
echo '#include "base/low.h"' >tree/common/checkpoint/pth/pth.h
echo '#include "checkpoint/pth/pth.h"' >tree/common/checkpoint/gguf/gguf.h
lint_finds order 'must not include common/checkpoint/pth/pth.h' \
    'a format includes another'
echo '#include "base/lost.h"' >>tree/common/text/high.c
lint_finds order "no file 'base/lost.h'" 'an include that is not there'

cat >tree/common/base/other.c <<'END'
int gpt_other(int a)
{
    return gpt_low(a);
}
END
echo 'int other = gpt_other(1);' >>tree/common/base/low.c
lint_finds cycles 'common/base: files need each other' 'two modules in a circle'
cat >tree/common/base/low_part.c <<'END'
int gpt_low_part(int a)
{
    return gpt_low(a);
}
END
echo 'int other = gpt_low_part(1);' >>tree/common/base/low.c
expect 0 'cycles: none inside of a module' perl "$lint" -C tree cycles
make_tree
echo '#include "base/low.h"' >tree/common/base/side.h
echo '#include "base/side.h"' >>tree/common/base/low.h
lint_finds cycles 'files need each other' 'two headers in a circle'

echo '/* Needs --seed. */' >>tree/common/text/high.c
lint_finds options 'names the option --seed' 'a comment names an option'
echo 'const char *hint = "give --seed";' >>tree/kernels/cpu/cpu.h
lint_finds options 'names the option --seed' 'a message names an option'
echo 'int f(int a) { return a --; }' >>tree/common/text/high.c
expect 0 'options: none is seen in code' perl "$lint" -C tree options

echo 'struct gpt_low { int b; };' >>tree/cmd/a/own.h
lint_finds tags "low.h:4: 'gpt_low' is also in cmd/a/own.h:2" 'a tag of two structs'

printf 'int f(void)\n{\n    int a = 1;\n    return a;\n}\n' \
    >>tree/common/base/low.c
lint_finds blanks 'low.c:14: no blank line' 'code right behind declarations'
echo 'int n = sizeof (int);' >>tree/common/base/low.c
lint_finds sizeof "write 'sizeof('" 'sizeof and a blank'
echo 'typedef struct low { int a; } low;' >>tree/common/base/low.h
lint_finds typedef 'a typedef of a struct' 'a typedef of a struct'
echo 'int f(int a) { int rc = a; return rc; }' >>tree/common/base/low.c
lint_finds rc "a result is called 'status'" 'another name for the result'
printf 'if (status == GPT_OK)\n status = f();\nif (status == GPT_OK)\n%s\n' \
    ' status = g();' >>tree/common/base/low.c
lint_finds ladder 'use GPT_TRY' 'a ladder'
printf 'static int run(int a)\n{\n    return a;\n}\n' >>tree/common/base/low.c
lint_finds names 'a verb and its object' 'a name that says nothing'
echo '/* Of what is there. */' >>tree/common/base/low.c
lint_finds prose "a sentence begins with 'Of'" 'a sentence without a subject'
for i in 1 2 3 4 5 6 7 8 9; do
    printf 'int a%s;\nint b%s;\n' $i $i >>tree/common/text/high.c
done
lint_finds comments 'comments / code is 0.083, at least 0.12' 'too few comments'

i=0
while [ $i -lt 500 ]; do
    echo '/* . */'
    i=$((i + 1))
done >>tree/common/text/high.h
lint_finds budget 'high.h: 501 lines, limit 500' 'a long file'
mkdir -p tree/tests/lib
echo 'common/text/high.h: a reason' >tree/tests/lib/budget.except
lint_finds budget 'high.h is not there or small' 'an exception without a cause'
{
    printf 'int f(void)\n{\n'
    i=0
    while [ $i -lt 81 ]; do
        echo '    g();'
        i=$((i + 1))
    done
    echo '}'
} >>tree/common/text/high.c
lint_finds budget 'function of 81 lines, limit 80' 'a long function'
printf '/* %080d */\n' 1 >>tree/common/text/high.c
lint_finds budget '86 columns, limit 80' 'a wide line'
printf 'int a; \n' >>tree/common/text/high.c
lint_finds budget 'a blank at the end' 'a blank at the end'
echo 'int f(char *a) { return atoi(a); }' >>tree/common/text/high.c
lint_finds calls 'a call without a bound' 'a banned call'
echo 'void f(void) { exit(1); }' >>tree/common/text/high.c
lint_finds calls 'only main() ends a program' 'a library that exits'

printf '#include <stdio.h>\n' >>tree/common/base/low.c
lint_finds includes 'low.c:11: uses nothing of <stdio.h>' 'an include too many'
printf 'int f(char *a) { return (int)strlen(a); }\n' >>tree/common/base/low.c
lint_finds includes "low.c:11: uses 'strlen(' and does not include <string.h>" \
    'an include too few'
printf '#include "cpu/cpu.h"\n' >>tree/common/text/high.c
lint_finds includes 'high.c:11: uses nothing of "cpu/cpu.h"' \
    'a header of which nothing is used'

printf 'int f(int a)\n{\n    return g(a,\n            a);\n}\n' \
    >>tree/common/base/low.c
lint_finds align 'low.c:14: arguments do not begin in one column' \
    'an argument out of line'
printf '/* One. */\n/* Two. */\nint f(int a);\n' >>tree/common/base/low.c
lint_finds pairs 'low.c:12: a comment follows another' 'two comments in a row'
printf '/* See lost.c. */\n' >>tree/common/base/low.c
lint_finds files "low.c:11: no file 'lost.c'" 'a comment on a lost file'
if command -v git >/dev/null; then
    (cd tree && echo x >left.whl && git init -q . && git add .) >/dev/null 2>&1
    lint_finds top 'left.whl: has no place' 'a file that a tool left behind'
    rm -rf tree/.git tree/left.whl
fi

# ---- what is allowed for a time ----
echo 'int n = sizeof (int);' >>tree/common/base/low.c
echo 'sizeof common/base 1' >tree/tests/lib/lint.allow
expect 0 'a number of findings may be left' perl "$lint" -C tree sizeof
echo 'int m = sizeof (int);' >>tree/common/base/low.c
lint_finds sizeof 'low.c:12' 'but not one more'
echo 'sizeof common/base 1' >tree/tests/lib/lint.allow
expect 0 'mended: the numbers are written anew' perl "$lint" -C tree -u
check 'without it' test ! -s tree/tests/lib/lint.allow

# ---- headers ----
make_tree
echo 'struct gpt_low low;' >tree/common/text/needy.h
expect 1 'a header that needs another before it' \
    sh "$top/tests/lib/headers.sh" tree
out_has 'common/text/needy.h does not compile alone'
make_tree
echo 'struct gpt_low { int b; };' >tree/common/text/twin.h
expect 1 'two headers that exclude each other' \
    sh "$top/tests/lib/headers.sh" tree
out_has 'not all in one file'
tap_done
