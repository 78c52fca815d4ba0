#!/usr/bin/perl
# Holds manual pages against the programs; prints what differs.
#
#   pages.pl options PAGE TABLE      each option's default and choices, as
#                                    `PROGRAM --complete=table` prints them
#   pages.pl foreign PAGE TABLE      each name of another program, as
#                                    `PROGRAM --complete=foreign` prints them
#   pages.pl messages PAGE FILE...   each message of DIAGNOSTICS has its fixed
#                                    parts in one string of the sources
#   pages.pl statuses PAGE           prints the exit statuses that the page names
#   pages.pl update PAGE TABLE       writes the lists of such names anew, between
#                                    the two comments of the page
use strict;
use warnings;

my ($what, $page, @files) = @ARGV;
my $bad = 0;

sub read_file {
    my ($name) = @_;
    open my $f, '<', $name or die "$name: $!\n";
    local $/;
    return <$f> // '';
}
sub wrong { print "$page: @_\n"; $bad = 1 }

# The lines of a section, by its title.
sub section {
    my ($title) = @_;
    my $text = read_file($page);
    return $text =~ /^\.Sh \Q$title\E\n(.*?)(?=^\.Sh |\z)/ms ? $1 : '';
}

# ---- options ----

# A line of mdoc without its macros, which are words of two letters.
sub plain {
    my ($line) = @_;
    $line =~ s/^\.It "?// or $line =~ s/^\.//;
    $line =~ s/(?<![\w.-])(Fl|Ar|Cm|Pa|Ev|Li|Ql|Xr|Sx|Dv|Ns|Op|Dl|Em|Pq|No|Ic|Pp)(?=\s|$)//g
        if $_[0] =~ /^\./;
    $line =~ s/\\&//g;
    $line =~ s/\\e/\\/g;
    $line =~ s/\\-/-/g;
    $line =~ s/\\\(dq/"/g;
    return $line;
}

# The text of each item, by the options that it is of. Items that stand together
# share the text of the last.
sub items {
    my (%text, @names, $open);
    for my $line (split /\n/, $_[0]) {
        if ($line =~ /^\.It Fl (.*)/) {
            @names = () unless $open;
            push @names, map { "-$_" } grep { /^-[a-z]/ } split ' ', $1;
            $open = 1;
        } elsif ($line =~ /^\.S[hs]/) {
            @names = ();
        } else {
            $text{$_} .= plain($line) . ' ' for @names;
            $open = 0;
        }
    }
    s/\s+/ /g for values %text;
    return %text;
}

# What a page says of an option: its own text, that of the pages to which this
# refers, and what gpt(7) says of all programs' options.
sub text_of {
    my ($name, $items) = @_;
    my $text = $items->{$name} // return;
    my ($dir) = $page =~ m{^(.*)/};
    for my $other ($text =~ /(gpt-[a-z]+ [15])/g) {
        my $whole = read_file("$dir/" . $other =~ s/ /./r);
        my %there = items($whole);
        $text .= $other =~ /5$/ ? join ' ', map { plain($_) } split /\n/, $whole
                                : $there{$name} // '';
    }
    my %common = items(read_file("$dir/gpt.7"));
    return $text . ' ' . ($common{$name} // '');
}

# The same number, however it is written: 1e-5 and 0.00001, 1.0 and 1.
sub same {
    my ($a, $b) = map { s/^2\^(\d+)$/2 ** $1/er } @_;
    my $number = qr/^-?[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?$/;
    return $a =~ $number && $b =~ $number ? $a == $b : $a eq $b;
}

sub check_options {
    my %items = items(section('OPTIONS'));
    for (split /\n/, read_file($files[0])) {
        my ($name, $letter, $kind, $offer, $choices, $other, $aliases, $def) =
            split /\t/;
        next if $name !~ /^--/;
        my $text = text_of($name, \%items);
        if (!defined $text) {
            wrong("$name has no text");
            next;
        }
        my @words = map { s/[,.;:]+$//r } split ' ', $text;
        my $has = sub { my $w = shift; scalar grep { same($_, $w) } @words };

        # What the page calls the default is the table's.
        for ($text =~ /(\S+) by default/g) {
            wrong("$name: $_ by default, the table says $def")
                if /^-?[0-9][0-9.e]*$/ and !same($_, $def);
        }
        # 0 and -1 stand for something that the page has to say.
        my $special = $def =~ /^(-1|0|-|false)$/;
        if (!$special and $kind ne 'flag') {
            wrong("$name: the default $def is not named")
                unless $text =~ /default/ and $has->($def);
        }
        wrong("$name: that it is on by default is not said")
            if $kind eq 'flag' and $def eq 'true' and $text !~ /default|always/;
        if ($offer eq 'choices' and $choices ne 'auto always never') {
            $has->($_) or wrong("$name: the choice $_ is not named")
                for split ' ', $choices;
        }
    }
}

# ---- names of other programs ----

# The rows of `PROGRAM --complete=foreign`, by what becomes of a name.
sub foreign_rows {
    my %rows;
    for (split /\n/, read_file($files[0])) {
        my ($name, $source, $outcome, $text) = split /\t/;
        push @{$rows{$outcome}}, [$name =~ s/^--//r, $source, $text];
    }
    return %rows;
}

# "--lr=%" as mdoc: "Fl -lr".
sub meaning {
    my ($means) = @_;
    my @options = map {
        my ($name, $value) = /^--([^=]*)(?:=(.*))?$/;
        "-$name" . (!defined $value || $value eq '%' ? '' : " Cm $value");
    } split ' ', $means;
    return '.Fl ' . join("\n.Fl ", @options);
}

# A list of names with commas: mdoc puts "Fl" before each by itself.
sub names {
    my $text = '.Fl';
    my $column = 3;
    for my $row (sort { $a->[0] cmp $b->[0] } @_) {
        my $word = " -$row->[0] ,";
        if ($column + length $word > 78) {
            $text .= "\n.Fl";
            $column = 3;
        }
        $text .= $word;
        $column += length $word;
    }
    return $text =~ s/,$/./r . "\n";
}

sub lists {
    my %rows = foreign_rows();
    my $text = '';
    if ($rows{means}) {
        $text .= ".Pp\nThese stand for options of this program:\n" .
            ".Bl -tag -width Ds -compact\n";
        $text .= ".It Li --$_->[0]\n" . meaning($_->[2]) . "\n"
            for sort { $a->[0] cmp $b->[0] } @{$rows{means}};
        $text .= ".El\n";
    }
    $text .= ".Pp\nThese have no effect here, and are skipped with a warning " .
        "that says\nwhy, or names them all where they are more than three and\n" .
        ".Fl -verbose\nis not given:\n" . names(@{$rows{skipped}}) if $rows{skipped};
    $text .= ".Pp\nThese are refused with what to write instead:\n" .
        names(@{$rows{refused}}) if $rows{refused};
    return $text;
}

my $begin = qr/^\.\\" The table of names, .*\n/m;
my $end = qr/^\.\\" End of the table\n/m;

sub update {
    my $text = read_file($page);
    my $lists = lists();
    $text =~ s/($begin).*?($end)/$1$lists$2/s or die "$page: no table\n";
    open my $f, '>', $page or die "$page: $!\n";
    print $f $text;
    close $f or die "$page: $!\n";
}

sub check_foreign {
    my $text = section('NAMES OF OTHER PROGRAMS');
    my $lists = lists();
    return if $lists eq '' or $text =~ /$begin\Q$lists\E$end/;
    my ($program) = $page =~ m{([^/]*)\.1$};
    wrong("the names of other programs differ from the table; to write them: " .
        "build/$program --complete=foreign >table && " .
        "perl tests/lib/pages.pl update man/$program.1 table");
}

# ---- messages ----

# What libraries say of their own, at the end of a message.
my %library = map { $_ => 1 } (
    'incorrect data check',    # zlib
    'already in use',          # strerror()
    'remote error',            # NCCL
);

# Every string of the sources, adjacent ones joined, with a NUL for what is
# printed into it.
sub strings {
    my @strings;
    for my $file (@files) {
        my $text = read_file($file);
        $text =~ s{/\*.*?\*/}{}gs;
        while ($text =~ /((?:"(?:[^"\\\n]|\\.)*"[\s\\]*(?:PRId64[\s]*)?)+)/g) {
            my $string = join '', $1 =~ /"((?:[^"\\\n]|\\.)*)"/g;
            $string =~ s/\\"/"/g;
            $string =~ s/\\n/ /g;
            $string =~ s/%[-+ 0#]*(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]+))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]/\0/g;
            push @strings, $string;
        }
    }
    return @strings;
}

# The parts of a message that do not change: words in a row, without names,
# numbers and what is quoted.
sub fixed_parts {
    my ($message) = @_;
    my @parts = ('');
    $message =~ s/\.\.\.//g;
    $message =~ s/'[^']*'/ \0 /g;
    for my $word (split ' ', $message) {
        my ($core, $end) = $word =~ /^(.*?)([.,:;]?)$/;
        if ($core =~ /^[a-z][a-z]*(?:-[a-z]+)*$/ and $core ne 'nan') {
            $parts[-1] .= ($parts[-1] eq '' ? '' : ' ') . "$core$end";
            push @parts, '' if $end eq ':';
        } else {
            push @parts, '';
        }
    }
    s/[.,:;]$// for @parts;
    return grep { $_ ne '' } @parts;
}

# True when the words are one part of a string, or parts of several of which one
# is printed into the other.
sub is_made {
    my ($all, $part, $begun) = @_;
    my $edge = qr/[\0\1][\s,:;.()']*/;
    my $before = $begun ? $edge : qr//;
    return 1 if $all =~ /$before\Q$part\E/;
    my @words = split ' ', $part;
    for my $n (1 .. $#words) {
        my $first = "@words[0 .. $n - 1]" =~ s/[,:;.]$//r;
        my $rest = "@words[$n .. $#words]";
        next unless $all =~ /$before\Q$first\E[\s,:;.()']*[\0\1]/;
        return 1 if is_made($all, $rest, 1);
    }
    return 0;
}

sub check_messages {
    my $all = "\1" . join("\1", strings()) . "\1";
    for (split /\n/, section('DIAGNOSTICS')) {
        next unless /^\.It (?:"(.*)"|Li (.*)|(.*))$/;
        if (defined $2) {
            wrong("no string '$2'") if index($all, "\1$2\1") < 0;
            next;
        }
        my $message = $1 // $3;
        my @parts = fixed_parts($message);
        # A single word says nothing about the message that it is in.
        for my $part (grep { / / or @parts == 1 } @parts) {
            wrong("'$message': no string has '$part'")
                unless $library{$part} or is_made($all, $part, '');
        }
    }
}

# ---- statuses ----

sub print_statuses {
    my $text = section('EXIT STATUS');
    print "$_\n" for $text =~ /^\.It (\S+)\n(?!Not used)/mg;
}

my %commands = (options => \&check_options, foreign => \&check_foreign,
    messages => \&check_messages, statuses => \&print_statuses,
    update => \&update);
($commands{$what // ''} // die "$0: which check?\n")->();
exit $bad;
