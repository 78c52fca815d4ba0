#!/usr/bin/perl
# What can be said about the C sources by reading them: the order of folders,
# circles, names, dialect, comments, sizes. Quick, so that `make check` does it
# (tests/cli/t98-lint.sh); `make lint` adds slower tools (lint.sh).
#
#     perl tests/lib/lint.pl [-C ROOT] [-u] [CHECK...]
#
# Prints "CHECK: place: what" a finding; the exit status is 1 when there is any.
# What is allowed all the same is in tests/lib/lint.allow and budget.except of
# ROOT; -u (with no CHECK) writes the numbers found now to lint.allow.
#
# Start at %checks. Only what Debian's perl-base holds is used.
use strict;
use warnings;

my ($root, $update) = ('.', 0);
while (@ARGV && $ARGV[0] =~ /^-/) {
    my $flag = shift;
    if ($flag eq '-C') { $root = shift }
    elsif ($flag eq '-u') { $update = 1 }
    else { die "lint.pl: unknown option $flag\n" }
}
chdir $root or die "lint.pl: $root: $!\n";

# ---- the sources ----

# text: as it is. code: comments and literals blanked, lines kept. words: the
# comments and literals alone, lines kept.
my (@files, %text, %code, %words, %comments);

sub split_text {
    my ($t) = @_;
    my ($code, $words, $comments) = ('', '', '');
    while ($t =~ m{\G(?:(/\*.*?\*/|//[^\n]*)
                     |("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
                     |([^/"']+|.))}gsx) {
        my ($comment, $literal, $rest) = ($1, $2, $3);
        my $piece = $comment // $literal // $rest;
        (my $blank = $piece) =~ s/[^\n]//g;
        $words .= defined $rest ? $blank : $piece;
        $comments .= defined $comment ? $piece : $blank;
        if (defined $rest) {
            $code .= $rest;
        } elsif (defined $comment) {
            $code .= $blank eq '' ? ' ' : $blank;
        } else {
            $code .= substr($piece, 0, 1) . $blank . substr($piece, -1);
        }
    }
    return ($code, $words, $comments);
}

sub read_file {
    my ($path) = @_;
    open my $in, '<', $path or die "lint.pl: $path: $!\n";
    local $/;
    my $text = <$in>;
    close $in;
    return defined $text ? $text : '';
}

for my $path (split /\n/, `find common kernels cmd tests -type f 2>/dev/null`) {
    next unless $path =~ /\.(c|h|cu|cuh|cc)$/;
    next if $path =~ m{/(unicode|packing)\w*_table\.c$}; # made by a script
    push @files, $path;
    $text{$path} = read_file($path);
    ($code{$path}, $words{$path}, $comments{$path}) = split_text($text{$path});
}
@files = sort @files;
my @library = grep { m{^(common|kernels)/} } @files;
my @product = grep { !m{^tests/} } @files;

# ---- findings, and what is allowed ----

my ($check, $bad) = ('', 0);
my (%allowed, @allow_lines, %counted);

sub find_fault {
    my ($place, $what) = @_;
    print "$check: $place: $what\n";
    $bad = 1;
}

# "CHECK KEY NUMBER": so many findings may stay; "CHECK KEY ok REASON".
if (open my $in, '<', 'tests/lib/lint.allow') {
    @allow_lines = <$in>;
    close $in;
    for (@allow_lines) {
        next if /^#/ || !/\S/;
        my ($name, $key, $value) = split ' ';
        $allowed{$name}{$key} = $value;
    }
}

sub line_of {
    my ($text, $offset) = @_;
    return 1 + (substr($text, 0, $offset) =~ tr/\n//);
}

# Findings that are counted by folder; more than allowed are faults. The numbers
# are for the days of a change: they only go down.
my %pending;
sub count_fault {
    my ($place, $what) = @_;
    my ($file) = split /:/, $place;
    push @{$pending{folder($file)}}, [$place, $what];
}

sub compare_counts {
    for my $folder (sort keys %pending) {
        my @found = @{$pending{$folder}};
        my $limit = $allowed{$check}{$folder} // 0;
        $counted{$check}{$folder} = @found;
        next if @found <= $limit;
        find_fault($_->[0], $_->[1]) for @found;
        print "# $check: ", scalar(@found), " in $folder, $limit allowed\n";
    }
    %pending = ();
}

sub folder { my ($f) = @_; $f =~ s{/[^/]*$}{}; return $f }

# ---- order: which folder may include which ----

my %rank = (base => 0, door => 1, text => 2, tokenizer => 3, data => 4,
            parallel => 5, model => 6, checkpoint => 7, train => 8,
            generate => 9);
# Inside of common/checkpoint: what all formats share, the containers of files,
# and the formats. One includes none of its own height.
my %height = ('' => 0, safetensors => 1, torch => 2, huggingface => 3, dcp => 4,
              map { $_ => 5 } qw(adapter deepspeed gguf llmc megatron native
                                 pth));
my %exists = map { $_ => 1 } @files;

sub resolve {
    my ($from, $name) = @_;
    for my $path (folder($from) . "/$name", "common/$name", "kernels/$name",
                  $name) {
        return $path if $exists{$path};
    }
    return undef;
}

sub includes {
    my ($file) = @_;
    my @found;
    while ($text{$file} =~ /^[ \t]*#[ \t]*include[ \t]+"([^"]+)"/mg) {
        my $line = line_of($text{$file}, $-[0]);
        push @found, [$1, $line, resolve($file, $1)];
    }
    return @found;
}

# True when a file of common/checkpoint may include another of it.
sub may_include_format {
    my ($from, $to) = map { m{^common/checkpoint/(?:(\w+)/)?} ? $1 // '' : '' }
        @_;
    return $from eq $to || defined $height{$from} && defined $height{$to} &&
        $height{$to} < $height{$from};
}

# True when a file of the product may include another.
sub may_include {
    my ($from, $to) = @_;
    return 0 if $to =~ m{^tests/};
    my ($door) = $to =~ m{^kernels/(backend|collectives|plugin)\.h$};
    if ($from =~ m{^kernels/(?:([a-z]+)/)?}) {
        my $own = $1 // '';
        return 1 if $to =~ m{^common/base/} || $to =~ m{^kernels/[^/]+$};
        my ($other) = $to =~ m{^kernels/([a-z]+)/};
        return defined $other &&
            ($own eq '' || $own eq $other || "$own $other" =~ /^(cuda emu|emu cuda)$/);
    }
    if ($from =~ m{^cmd/([^/]+)/}) {
        my $own = $1;
        return $to =~ m{^cmd/\Q$own\E/} || $to =~ m{^common/} || $door;
    }
    my ($low) = $to =~ m{^common/([a-z]+)/};
    my ($high) = $from =~ m{^common/([a-z]+)/};
    $low = 'door' if $door;
    return 0 unless defined $low && defined $rank{$low} &&
        defined $rank{$high};
    return may_include_format($from, $to)
        if $low eq 'checkpoint' && $high eq 'checkpoint';
    return $rank{$low} <= $rank{$high};
}

sub check_order {
    for my $file (@product) {
        for my $i (includes($file)) {
            my ($name, $line, $path) = @$i;
            if (!defined $path) {
                find_fault("$file:$line", "no file '$name'");
            } elsif (!may_include($file, $path)) {
                find_fault("$file:$line", "must not include $path");
            }
        }
    }
}

# ---- cycles: files that need each other ----

# Functions that a file defines for others, by name.
sub definitions {
    my ($file) = @_;
    my @names;
    while ($code{$file} =~ /^(?!static\b|typedef\b|extern\b|struct\s+\w+\s*\{)
                            [a-zA-Z][\w \t*\n]*?\b(\w+)\(([^;{}]*)\)\s*\n\{/mgx) {
        push @names, $1;
    }
    return @names;
}

# A .c file needs the one that defines a function which it names, a header the
# headers that it includes.
sub dependencies {
    my (%definer, %needs);
    my @sources = grep { !m{^kernels/(cuda|emu)/|/isa/} } @product;
    for my $file (grep { /\.c$/ && !m{/main\.c$} } @sources) {
        $definer{$_} = $file for grep { /^(gpt|cpu)_/ } definitions($file);
    }
    for my $file (@sources) {
        if ($file =~ /\.h$/) {
            for my $i (includes($file)) {
                $needs{$file}{$i->[2]} //= "includes $i->[0]"
                    if defined $i->[2];
            }
            next;
        }
        while ($code{$file} =~ /\b((?:gpt|cpu)_\w+)\b/g) {
            my $to = $definer{$1};
            $needs{$file}{$to} //= "uses $1()" if defined $to && $to ne $file;
        }
    }
    return \%needs;
}

# One module: files of a folder whose names begin with the same word, and all of a
# checkpoint format.
sub module {
    my ($file) = @_;
    return $1 if $file =~ m{^(common/checkpoint/\w+)/};
    return $file =~ m{^(.*/[^/_.]+)} ? $1 : $file;
}

# Strongly connected components, by Tarjan.
sub components {
    my ($needs) = @_;
    my (%index, %low, %on, @stack, @found);
    my $n = 0;
    my $visit;
    $visit = sub {
        my ($v) = @_;
        $index{$v} = $low{$v} = $n++;
        push @stack, $v;
        $on{$v} = 1;
        for my $w (sort keys %{$needs->{$v} // {}}) {
            $visit->($w) unless defined $index{$w};
            $low{$v} = $low{$w} if $on{$w} && $low{$w} < $low{$v};
        }
        return if $low{$v} != $index{$v};
        my @part;
        while (1) {
            my $w = pop @stack;
            $on{$w} = 0;
            push @part, $w;
            last if $w eq $v;
        }
        push @found, [sort @part] if @part > 1;
    };
    no warnings 'recursion';
    for my $v (sort keys %$needs) {
        $visit->($v) unless defined $index{$v};
    }
    return @found;
}

sub check_cycles {
    my $needs = dependencies();
    for my $part (components($needs)) {
        my %modules = map { module($_) => 1 } @$part;
        my %folders = map { folder($_) => 1 } @$part;
        my $key = join ' ', sort keys %folders;
        next if keys %modules < 2 || $allowed{$check}{$key};
        my %in = map { $_ => 1 } @$part;
        find_fault($key, 'files need each other');
        for my $v (@$part) {
            for my $w (grep { $in{$_} } sort keys %{$needs->{$v}}) {
                next if module($v) eq module($w);
                print "    $v -> $w: $needs->{$v}{$w}\n";
            }
        }
    }
}

# ---- includes: a .c file includes what it uses, and nothing else ----

# Functions of the standard headers, before the bar; names that are used without
# a call, between the bars; after them those that other headers define as well,
# which only show that an include is used. Words of a regular expression.
my %standard = (
    'assert.h' => 'assert static_assert | |',
    'ctype.h' => 'is(?:al(?:num|pha)|x?digit|print|space|upper) to(?:low|upp)er
        | |',
    'errno.h' => '| errno | E[A-Z0-9]{3,}',
    'fcntl.h' => 'open openat fcntl posix_fadvise posix_fallocate fallocate
        | | O_\w+ F_\w+ AT_\w+',
    'float.h' => '| (?:FLT|L?DBL)_[A-Z]\w* |',
    'inttypes.h' => 'strto[iu]max | PRI[diuxX]\w+ SCN\w+ |',
    'limits.h' => '| (?:CHAR|U?INT|U?LONG|U?LLONG|SSIZE)_(?:BIT|MAX|MIN)
        PATH_MAX |',
    'math.h' => '(?:sqrt|exp2?|expm1|log(?:2|10|1p)?|pow|fabs|floor|ceil)[fl]?
        (?:l?l?r(?:ound|int)|trunc|fmod|fmin|fmax|[lf]?dexp|frexp)[fl]?
        (?:sin|cos|a?tanh?|erfc?|fma|copysign|nextafter|hypot|cbrt|modf)[fl]?
        l?l?(?:round|rint)f? isnan isinf isfinite signbit
        | INFINITY NAN HUGE_VALF? M_[A-Z]\w* |',
    'pthread.h' => 'pthread_\w+ | PTHREAD_\w+ pthread_\w+_t |',
    'signal.h' => 'sig(?:action|(?:empty|fill|add|del)set|wait|procmask|nal)
        raise killp?g? | | SIG[A-Z]\w* sigset_t sig_atomic_t pthread_sigmask',
    'stdarg.h' => 'va_start va_end va_copy | | va_list va_arg',
    'stdatomic.h' => 'atomic_\w+ | | atomic_\w+ _Atomic memory_order_\w+',
    'stdio.h' => '(?:[fd]|sn?|v|v[fd]|vsn?)?printf f(?:open|close|flush|puts)
        fputc putchar putc puts fread fwrite fgets getline getc sscanf perror
        fdopen fileno freopen setvbuf open_memstream ferror feof fseek ftell
        rename remove | std(?:out|err|in) FILE | EOF SEEK_\w+ BUFSIZ',
    'stdlib.h' => '(?:[mc]|re)alloc free aligned_alloc posix_memalign getenv
        setenv unsetenv strto(?:l|ll|ul|ull|d|f|ld) ato(?:i|l|ll|f) qsort
        bsearch abort exit atexit mk[sd]temp realpath llabs labs system s?rand
        | | abs div EXIT_[SF]\w+ _Exit',
    'string.h' => 'mem(?:cpy|move|set|cmp|r?chr|mem|ccpy) mempcpy
        str(?:len|n?cmp|r?chr|chrnul|str|casestr|c?spn|pbrk|cat|ncat|n?dup)
        str(?:error|error_r|signal|tok_r|sep|nlen|cpy|ncpy) explicit_bzero
        stpcpy | | strn?casecmp',
    'strings.h' => 'strn?casecmp | |',
    'sys/stat.h' => '[fl]?stat fstatat mkdir mkdirat f?chmod umask utimensat
        futimens S_IS[A-Z]\w+ | struct\s+stat | S_I\w+',
    'time.h' => 'time clock localtime_r gmtime_r strftime (?:clock_)?nanosleep mktime
        clock_gettime timegm | struct\s+tm | CLOCK_\w+ time_t timespec',
    'unistd.h' => 'p?read p?write close lseek fsync fdatasync f?truncate unlink
        rmdir access isatty dup[23]? pipe2? fork exec[lv]\w* sysconf syscall u?sleep
        gethostname link symlink readlink getp?pid setpgid gete?uid alarm chdir
        getcwd | | _SC_\w+ STD\w+_FILENO SEEK_\w+ environ _exit [RWF]_OK',
);
# What shows in the code of a file that it must include a header, and what shows
# that it uses the header.
my (%must_include, %uses);
for my $header (keys %standard) {
    my ($calls, $names, $shared) =
        map { join '|', split ' ' } split /(?<!\S)\|(?!\S)/,
        $standard{$header}, -1;
    my $free = qr/(?<![\w.]|->)/; # neither a member nor a part of a word
    my @must;
    push @must, qr/$free(?:$calls)\s*\(/ if $calls ne '';
    push @must, qr/$free(?:$names)\b/ if $names ne '';
    $must_include{$header} = join '|', @must;
    push @must, qr/\b(?:$shared)\b/ if $shared ne '';
    push @must, qr/[(,=:?]\s*(?:$calls)\s*[,;):]/ if $calls ne '';
    $uses{$header} = join '|', @must;
}

# Names that a header of ours makes known.
sub names_of {
    my ($file) = @_;
    my $c = $code{$file};
    my %names;
    # what files have through it: the standard types, and cJSON's names
    $names{$_} = 1 for $file eq 'common/base/status.h' ?
        qw(bool true false size_t NULL int64_t uint64_t int32_t uint32_t
           int16_t uint16_t int8_t uint8_t uintptr_t) : ();
    $names{cJSON} = 1 if $file eq 'common/base/json.h';
    while ($c =~ /^[ \t]*#[ \t]*define[ \t]+(\w+)((?:.*\\\n)*.*)/mg) {
        my ($name, $body) = ($1, $2);
        $names{$_} = 1
            for $name, $name =~ /_LIST$/ ? $body =~ /\w+/g : ();
    }
    $c =~ s/^[ \t]*#.*(?:\\\n.*)*$//mg;
    $names{$1} = 1 while $c =~ /\b(?:struct|union|enum)\s+(\w+)\s*[{;]/g;
    while ($c =~ /\b(?:struct|union|enum)\b[^;{(]*\{([^{}]*)\}/g) {
        $names{$_} = 1 for $1 =~ /\w+/g;
    }
    1 while $c =~ s/\{[^{}]*\}/;/g;
    $names{$1} = 1 while $c =~ /\b(\w+)\s*\(/g;
    $names{$1} = 1 while $c =~ /\btypedef\b[^;]*?(\w+)\s*;/g;
    $names{$1} = 1 while $c =~ /^\w+ (\w+);/mg; # by a type of functions
    $names{$1} = 1 while $c =~ /^(?:extern|static)\b[^;()]*?(\w+)(?:\[[^;]*)?\s*[=;]/mg;
    return \%names;
}

sub standard_includes {
    my ($file) = @_;
    my %line;
    while ($text{$file} =~ /^[ \t]*#[ \t]*include[ \t]+<([^>]+)>/mg) {
        $line{$1} = line_of($text{$file}, $-[0]);
    }
    return \%line;
}

sub check_includes {
    my %names;
    for my $file (grep { /\.c$/ && !m{^kernels/emu/} } @files) {
        my $c = $code{$file};
        $c =~ s/^[ \t]*#[ \t]*include.*$//mg;
        $c =~ s/\bcJSON_\w+/cJSON/g;
        my %words = map { $_ => 1 } $c =~ /\b([A-Za-z_]\w*)/g;
        my $has = standard_includes($file);
        for my $header (sort keys %$has) {
            find_fault("$file:$has->{$header}", "uses nothing of <$header>")
                if $uses{$header} && $c !~ /$uses{$header}/;
        }
        my ($stem) = $file =~ m{([^/]+)\.c$};
        for my $i (includes($file)) {
            my ($name, $line, $path) = @$i;
            next unless defined $path && $path =~ /\.h$/;
            if (defined $stem && $name =~ m{(?:^|/)\Q$stem\E\.h$}) {
                %$has = (%$has, %{standard_includes($path)});
                next;
            }
            $names{$path} //= names_of($path);
            next if $code{$path} =~ /##/; # makes names
            find_fault("$file:$line", "uses nothing of \"$name\"")
                unless $allowed{$check}{$name} ||
                grep { $words{$_} } keys %{$names{$path}};
        }
        next if $file =~ m{^tests/};
        for my $header (sort keys %must_include) {
            next if $has->{$header} || $c !~ /$must_include{$header}/;
            find_fault("$file:" . line_of($c, $-[0]),
                       "uses '$&' and does not include <$header>");
        }
    }
}

# ---- options: the library names none ----

sub check_options {
    my $rows = qr{^common/(base/options|tokenizer/tokenizer_options|
                             parallel/stage_options)}x;
    for my $file (grep { $_ !~ $rows } @library) {
        my $n = 0;
        for my $line (split /\n/, $words{$file}) {
            $n++;
            while ($line =~ /(?<![\w-])(--[a-z][\w-]*)/g) {
                next if ($allowed{$check}{$1} // '') eq 'ok';
                count_fault("$file:$n", "names the option $1");
            }
        }
    }
}

# ---- tags: a struct's name means one thing ----

sub check_tags {
    my %where;
    for my $file (@product) {
        while ($code{$file} =~ /\b(?:struct|union|enum)\s+(gpt_\w+)\s*\{/g) {
            my $tag = $1;
            my $place = "$file:" . line_of($code{$file}, $-[0]);
            find_fault($place, "'$tag' is also in $where{$tag}")
                if $where{$tag} && !$allowed{$check}{$tag};
            $where{$tag} //= $place;
        }
    }
}

# ---- dialect ----

my $type = qr/(?:(?:const|static|volatile|unsigned|signed|long|short|register|
    _Atomic|_Alignas\(\w+\))\s+)*
    (?:(?:struct|union|enum)\s+\w+|\w+_t|char|int|long|short|unsigned|float|
    double|bool|void|FILE|DIR|cJSON|va_list)\b(?:\s+const\b)?/x;
my $declaration = qr/^\s+$type(?:\s+|\s*\*+\s*)(?:const\s+|restrict\s+)*
    \(?\**\w+\s*(?:[=;,\[)]|$)/x;
# Declarations with a type of a library, or a struct without a name: they are
# not counted, but another one before them needs no blank line.
my $other_declaration = qr/^\s+(?:(?:static|const)\s+)*(?:struct\s*\{|
    (?!(?:return|goto|else|case)\b)[A-Za-z_]\w*\s+\**[A-Za-z_]\w*\s*[=;,\[])/x;

# Line numbers where the declarations that open a block are followed by
# something else without a blank line.
sub missing_blanks {
    my ($code) = @_;
    my @lines = split /\n/, $code, -1;
    my @found;
    for (my $i = 0; $i < @lines; $i++) {
        next unless $lines[$i] =~ /\{\s*$/;
        next if $lines[$i] =~ /=\s*\{\s*$|^(static\s+|extern\s+)?(const\s+)?
                               (struct|union|enum)\b[^()]*\{\s*$|^\S.*=.*\{\s*$/x;
        my $j = $i + 1;
        while ($j < @lines && $lines[$j] =~ $declaration) {
            my $depth = 0;
            for (; $j < @lines; $j++) {
                my $line = $lines[$j];
                $depth += ($line =~ tr/({[//) - ($line =~ tr/)}]//);
                last if $depth <= 0 && $line =~ /;\s*$/;
            }
            $j++;

        }
        next if $j == $i + 1 || $j >= @lines;
        push @found, $j + 1 unless $lines[$j] =~ /^\s*(\}.*)?$|^\s*#/ ||
                                   $lines[$j] =~ $other_declaration;
    }
    return @found;
}

sub check_blanks {
    for my $file (grep { /\.c$/ } @files) {
        count_fault("$file:$_", 'no blank line after the declarations')
            for missing_blanks($code{$file});
    }
}

# Lines that continue a list of arguments or parameters, after a comma, and do
# not begin where the list does.
sub misaligned {
    my ($code) = @_;
    my ($n, @open, @found) = (0);
    for my $line (split /\n/, $code, -1) {
        $n++;
        next if $line =~ /^\s*#/ || $line =~ /\\$/;
        if (@open && $open[-1][0] eq '(' && $open[-1][2] &&
            $line =~ /^( *)\S/) {
            push @found, $n if length($1) != $open[-1][1];
        }
        $open[-1][2] = 0 if @open;
        while ($line =~ /([({\[])|([)}\]])/g) {
            my ($bracket, $at) = ($1, pos($line));
            if (defined $bracket) {
                $bracket = 'at the end' if substr($line, $at) !~ /\S/;
                push @open, [$bracket, $at, 0];
            } elsif (@open) {
                pop @open;
            }
        }
        $open[-1][2] = $line =~ /,\s*$/ if @open;
    }
    return @found;
}

sub check_align {
    for my $file (grep { /\.([ch]|cc)$/ } @product) {
        find_fault("$file:$_", 'arguments do not begin in one column')
            for misaligned($code{$file});
    }
}

sub find_all {
    my ($files, $pattern, $what) = @_;
    for my $file (@$files) {
        while ($code{$file} =~ /$pattern/g) {
            count_fault("$file:" . line_of($code{$file}, $-[0]), $what);
        }
    }
}

sub check_sizeof { find_all(\@files, qr/\bsizeof(?!\()/, "write 'sizeof('") }
sub check_typedef { # kernels/emu has the types of CUDA, under their names
    my @sources = grep { !m{^kernels/emu/} } @product;
    find_all(\@sources, qr/\btypedef\s+(?:struct|union|enum)\b/,
             'a typedef of a struct, union or enum');
}
sub check_rc {
    find_all(\@product, qr/\brc\b/, "a result is called 'status'");
}
sub check_ladder {
    my $step = qr/if \(status == GPT_OK\)\s*status =[^;]*;\s*/;
    find_all(\@product, qr/$step(?=$step)/,
             'a chain of calls: use GPT_TRY or GPT_TRY_GOTO');
}

# Function names that do not say what is done.
my $vague = join '|', qw(run look tell aim meet need lie deal doze judge beat
                         lag lose say get turn);
sub check_names {
    my @sources = grep { /\.c$/ } @product;
    find_all(\@sources, qr/^static\b[^;={(]*?\b(?:$vague)\((?=[^;{]*\)\s*\{)/m,
             'a function is called by a verb and its object');
}

# ---- prose ----

my @phrases = (
    [qr{/\*+\s+Of\s}, "a sentence begins with 'Of'"],
    [qr/\b(?:[Ww]ho|[Ww]hoever|[Ss]omebody|[Nn]obody)\b/, "a person for code"],
    [qr/\b(?:goes|go|gone|going) on with\b/, "'resumes' is meant"],
    [qr/\b(?:is|are) told\b/, "'is reported' is meant"],
    [qr/\blets? go of\b/, "'releases' is meant"],
    [qr{/\*+\s+(?:Is|Are|Does|Do|Has|Have|Can|May|Would|Whether)\b[^.]*\?},
     "a contract is a sentence: 'True when ...'"],
);
sub check_prose {
    for my $file (@product) {
        for my $p (@phrases) {
            while ($comments{$file} =~ /$p->[0]/g) {
                count_fault("$file:" . line_of($comments{$file}, $-[0]),
                            $p->[1]);
            }
        }
    }
}

# Two comments one after the other are one that grew in two places.
sub check_pairs {
    for my $file (@product) {
        my $t = $text{$file};
        while ($t =~ m{^[ \t]*/\*(?:(?!\*/).)*\*/\n(?=[ \t]*/\*(?!(?:(?!\*/).)*\*/\n[ \t]*\n))}gsm) {
            next if $& =~ m{^\s*/\* ----}; # the heading of a part
            find_fault("$file:" . line_of($t, $+[0]), 'a comment follows another');
        }
    }
}

# Files that comments and README speak of exist.
sub check_files {
    my %base;
    my @all = split /\n/, `find . -path ./build -prune -o -type f -print`;
    for my $path (@all) {
        $path =~ s{^\./}{};
        my @parts = split m{/}, $path;
        $base{join '/', @parts[$_ .. $#parts]} = 1 for 0 .. $#parts;
    }
    my %said = map { $_ => $comments{$_} } @files;
    $said{README} = read_file('README') if -e 'README';
    for my $file (sort keys %said) {
        while ($said{$file} =~ m{(?<![\w./<-])((?:\w+/)*[A-Za-z]\w*\.(?:[ch]|cuh?|cc|sh|pl|mk))\b(?![\w/-]|\.\w)}g) {
            my ($name, $at) = ($1, $-[0]);
            next if $base{$name} || $allowed{$check}{$name};
            find_fault("$file:" . line_of($said{$file}, $at), "no file '$name'");
        }
    }
}

# ---- top: what the top folder holds ----

# Of what git tracks: a user's own files there are no fault. "git add" of a whole
# tree takes along whatever a tool left in it.
sub check_top {
    my %known = map { $_ => 1 } qw(.ci .clang-format .gitignore Makefile README
        cmd common kernels man share tests);
    for my $name (map { m{^([^/\n]+)} } `git ls-files 2>/dev/null`) {
        find_fault($name, 'has no place in the top folder')
            unless $known{$name}++;
    }
}

# ---- comments: how much the .c files of a folder say ----

# A floor, below which a folder is surely not explained, and no target: what code
# says itself needs no comment.
my $enough = 0.12;
sub check_comments {
    my (%said, %coded);
    for my $file (grep { /\.(c|cu|cc)$/ } @product) {
        my @code = split /\n/, $code{$file}, -1;
        my @comment = split /\n/, $comments{$file}, -1;
        $coded{folder($file)} += grep { /\S/ } @code;
        $said{folder($file)} += grep { /\w/ } @comment;
    }
    for my $folder (sort keys %coded) {
        my $ratio = $coded{$folder} ? $said{$folder} / $coded{$folder} : 1;
        my $want = $allowed{$check}{$folder} // $enough;
        $counted{$check}{$folder} = $ratio;
        printf "# comments %-26s %5d / %6d = %.3f\n", $folder, $said{$folder},
            $coded{$folder}, $ratio;
        find_fault($folder, sprintf('comments / code is %.3f, at least %s',
                                    $ratio, $want)) if $ratio + 0.0005 < $want;
    }
}

# ---- sizes: of files, functions and lines; calls that are banned ----

my %except;
if (open my $in, '<', 'tests/lib/budget.except') {
    while (<$in>) {
        $except{$1} = $2 if /^([^#\s]\S*):\s*(\S.*)$/;
    }
    close $in;
}

sub check_budget {
    for my $file (@files) {
        my @lines = split /\n/, $text{$file}, -1;
        pop @lines if @lines && $lines[-1] eq '';
        my $limit = $file =~ m{^tests/} ? 800 : 500;
        find_fault($file, scalar(@lines) . " lines, limit $limit, and no "
                   . 'reason in tests/lib/budget.except')
            if @lines > $limit && !$except{$file};
        my $columns = $file =~ /\.(cuh?|cc)$/ ? 100 : 80;
        my $start = 0;
        for my $n (1 .. @lines) {
            my $line = $lines[$n - 1];
            (my $wide = $line) =~ s/[\200-\277]//g;
            find_fault("$file:$n", length($wide) . " columns, limit $columns")
                if length($wide) > $columns;
            find_fault("$file:$n", 'a tab') if $line =~ /\t/;
            find_fault("$file:$n", 'a blank at the end') if $line =~ /\s$/;
            $start = $n if $line =~ /^\{/;
            next unless $line =~ /^\}/ && $start;
            my $long = $n - $start - 1;
            find_fault("$file:$start", "function of $long lines, limit 80")
                if $long > 80;
            $start = 0;
        }
    }
    for my $file (sort keys %except) {
        find_fault('tests/lib/budget.except', "$file is not there or small")
            if !$exists{$file} || ($text{$file} =~ tr/\n//) <= 500;
    }
}

my $unbounded = join '|', qw(strcpy strcat sprintf vsprintf strtok gets atoi
                             atol atof system mktemp);
sub check_calls {
    my @sources = grep { /\.[ch]$/ && !m{^kernels/(cuda|emu)/} } @product;
    find_all(\@sources, qr/(?<![\w>.])(?:$unbounded)\s?\(/,
             'a call without a bound, or without a result');
    @sources = grep { !m{^common/base/(signals|fault)\.c$} } @sources;
    find_all(\@sources, qr/(?<![\w>.])(?:exit|_exit|abort)\s?\(/,
             'only main() ends a program');
}

# ---- all ----

my %checks = (
    order => \&check_order, cycles => \&check_cycles,
    options => \&check_options, tags => \&check_tags,
    blanks => \&check_blanks, sizeof => \&check_sizeof,
    typedef => \&check_typedef, rc => \&check_rc, ladder => \&check_ladder,
    names => \&check_names, prose => \&check_prose,
    comments => \&check_comments, budget => \&check_budget,
    calls => \&check_calls, includes => \&check_includes,
    align => \&check_align,
    pairs => \&check_pairs, files => \&check_files,
    top => \&check_top,
);
@ARGV = sort keys %checks unless @ARGV;
for my $name (@ARGV) {
    die "lint.pl: no check '$name'\n" unless $checks{$name};
    $check = $name;
    $checks{$name}->();
    compare_counts();
}

# With -u: the reasons stay, the numbers become those found now.
if ($update) {
    open my $out, '>', 'tests/lib/lint.allow' or die "lint.allow: $!\n";
    print $out grep { /^#|^\s*$|^\S+ \S+ ok / } @allow_lines;
    for my $name (sort keys %counted) {
        for my $key (sort keys %{$counted{$name}}) {
            my $now = $counted{$name}{$key};
            next if $name eq 'comments' && $now >= $enough;
            $now = int($now * 1000) / 1000 if $name eq 'comments';
            print $out "$name $key $now\n" if $now || $name eq 'comments';
        }
    }
    close $out;
}
exit $bad;
